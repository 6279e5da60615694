"""What README and docs/python.md show works."""

import asyncio
import doctest
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import join

import tranship
import tranship.admin
import tranship.mp as mp
from tranship.mp import _queues

ROOT = pathlib.Path(__file__).resolve().parents[5]


def is_error(thing):
    return isinstance(thing, type) and issubclass(thing, tranship.Error)


def programs(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def test_every_program_that_a_page_shows_is_run_here():
    pages = ["README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]
    shown = {page: len(programs(page)) for page in pages if programs(page)}
    # That of torch is run by packages/with_torch.py.
    assert shown == {"README.md": 1, "docs/python.md": 4, "docs/mp.md": 3}


def test_the_program_in_the_readme(tmp_path):
    (program,) = programs("README.md")
    assert len(program.splitlines()) <= 12
    file = tmp_path / "video.py"
    file.write_text(program)
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("[0 0 0] <tranship.Buffer of 8388608 bytes, read-only, shared, trust producer")


@pytest.mark.parametrize(("number", "said"), [(0, "6220800"), (1, "(1048576,) 8")])
def test_the_programs_of_the_page_on_multiprocessing(number, said, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(programs("docs/mp.md")[number])
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == said


# All that a program names but errors and constants. What needs torch has its test in packages/with_torch.py.
NAMED = [thing for name in tranship.__all__ if callable(thing := getattr(tranship, name)) and not is_error(thing)]
QUEUES = [_queues.Queue, _queues.SimpleQueue, _queues.JoinableQueue]
NAMED += [tranship.admin.Admin, mp.empty, mp.zeros, mp.array, mp.shared_memory.SharedMemory, mp.shared_memory.ShareableList, *QUEUES]


@pytest.mark.parametrize("thing", NAMED, ids=lambda thing: thing.__qualname__)
def test_the_examples_in_docstrings(thing):
    runner = doctest.DocTestRunner()
    said = []
    for found in doctest.DocTestFinder().find(thing, thing.__name__, module=False, globs={}):
        runner.run(found, out=said.append)
    assert runner.tries and not runner.failures, "".join(said)


@pytest.fixture
def at_domain(domain, monkeypatch):
    monkeypatch.setenv("TRANSHIP_SOCKET", str(domain.socket_path))


def test_the_two_programs_of_the_page(at_domain, domain):
    sends, receives, _, awaits = programs("docs/python.md")
    here, there = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for program in (receives, sends)
    ]
    said, _ = here.communicate()
    if here.returncode:
        there.kill()  # which waits for the other
    there.communicate()
    assert (here.returncode, there.returncode) == (0, 0)
    assert said.startswith("255.0 uint8 (1080, 1920, 3)")
    compile(awaits, "docs/python.md", "exec")


def test_the_topic_of_the_page(capsys):
    exec(programs("docs/python.md")[2], {})
    assert capsys.readouterr().out == "60 b'a frame'\n"


def test_what_the_page_awaits(domain, other, pool, capsys):
    names = {}
    exec(programs("docs/python.md")[-1], names)
    there, here = join(domain, other, "there")
    back, got = join(domain, other, "back")
    question = domain.pool("asks", 1 << 20).copy(bytes(4096))

    async def main():
        answers = asyncio.create_task(names["answer"](here, back, pool))
        await there.send_async(question)
        await answers
        back.close()
        await names["consume"](got)

    asyncio.run(main())
    assert capsys.readouterr().out == "4096\n"


def test_what_came_is_sent_on_if_its_writer_allows_it(domain, other):
    there, here = join(domain, other, "there")
    pool = domain.pool("asks", 1 << 20)

    # A third, because a process may always send its own buffers.
    with tranship.connect("third", socket=domain.socket_path) as third:
        on, got = join(other, third, "on")

        async def main():
            came = asyncio.create_task(here.recv_async())
            question = pool.copy(b"asked")
            await there.send_async(question)
            came = await came
            with pytest.raises(tranship.AccessDenied):
                on.send(came, timeout=120)
            pool.allow_forward(there.peer)
            taken = asyncio.create_task(got.recv_async())
            await on.send_async(came)
            assert bytes(await taken) == b"asked"

        asyncio.run(main())


def test_the_page_lists_every_exception():
    page = (ROOT / "docs/python.md").read_text()
    for name in tranship.__all__:
        thing = getattr(tranship, name)
        if is_error(thing):
            assert f"`{name}`" in page or f"`tranship.{name}`" in page, name
            bases = [base for base in thing.__bases__ if base is not tranship.Error]
            assert all(f"`{base.__name__}`" in page for base in bases if base is not Exception), name


def test_page_of_methods_is_true():
    page = (ROOT / "docs/python.md").read_text()
    classes = {"pool": tranship.Pool, "buffer": tranship.Buffer, "sender": tranship.Sender, "receiver": tranship.Receiver, "domain": tranship.Domain, "listener": tranship.Listener, "publisher": tranship.Publisher, "subscriber": tranship.Subscriber, "service": tranship.Service, "request": tranship.Request, "client": tranship.Client, "call": tranship.Call, "producer": tranship.Producer, "consumer": tranship.Consumer, "item": tranship.Item}
    named = re.findall(r"\b(pool|buffer|sender|receiver|domain|listener|publisher|subscriber|service|request|client|call|producer|consumer|item)\.(\w+)", page)
    assert len(named) > 20
    for what, name in named:
        assert hasattr(classes[what], name), f"{what}.{name}"
