"""What a programmer meets: names, words of help, types of errors, descriptors to wait on."""

import inspect
import os
import pathlib
import pickle
import select
import socket
import subprocess
import sys

import pytest
from conftest import apart, join

import tranship
import tranship.admin

CLASSES = [tranship.admin.Admin, *(thing for thing in vars(tranship._native).values() if getattr(thing, "__module__", "") == "tranship")]
STUB = pathlib.Path(tranship.__file__).with_name("_native.pyi")


def own(kind):
    """What of a class is for its user, by name."""
    return {name: thing for name, thing in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("kind", CLASSES)
def test_help_says_something_of_everything(kind):
    silent = [name for name, thing in own(kind).items() if not (thing.__doc__ or "").strip()]
    assert (silent, bool(kind.__doc__)) == ([], True)


def test_functions_and_errors_have_words_too():
    for name in tranship.__all__:
        thing = getattr(tranship, name)
        assert isinstance(thing, (str, int)) or inspect.getdoc(thing), name


@pytest.mark.parametrize("kind", CLASSES)
def test_help_and_the_stubs_say_the_same(kind):
    import ast

    said = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name in (kind.__name__, "_Closing", "_End"):
            said[node.name] = ast.get_docstring(node)
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    said[inner.name] = ast.get_docstring(inner) or said.get(inner.name)

    def plain(text):
        return " ".join((text or "").split(">>>")[0].split())  # the stubs have no examples

    for name, thing in own(kind).items():
        assert plain(thing.__doc__) == plain(said[name]), f"{kind.__name__}.{name}"
    assert plain(kind.__doc__) == plain(said[kind.__name__])


def test_methods_have_signatures():
    for kind in CLASSES:
        for name, thing in own(kind).items():
            if callable(thing):
                inspect.signature(thing)
    assert "order" in inspect.signature(tranship.Pool.zeros).parameters


def test_constants_are_there():
    assert tranship.INLINE_BYTES == 40
    assert tranship.__version__.count(".") == 2


def test_errors_have_the_names_that_programs_catch_them_by(channel):
    _, receiver = channel
    with pytest.raises(tranship.TimedOut) as caught:
        receiver.recv(timeout=0)
    assert type(caught.value).__module__ == "tranship"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (tranship.TimedOut, str(caught.value))
    for name in tranship.__all__:
        thing = getattr(tranship, name)
        assert getattr(thing, "__module__", "tranship") == "tranship", name


def test_a_number_that_does_not_fit_names_its_argument(domain, channel, pool):
    sender, receiver = channel
    buffer = pool.alloc(8)
    calls = {
        "nbytes": [lambda n: pool.alloc(n)],
        "len": [lambda n: buffer.truncate(n)],
        "start": [lambda n: buffer.slice(n)],
        "stop": [lambda n: buffer.slice(0, n)],
        "word": [lambda n: sender.send(buffer, n), lambda n: sender.send(b"", n), lambda n: receiver.send_back(b"", n)],
        "lines": [lambda n: domain.listen("n", tranship.Sender, lines=n), lambda n: domain.open("n", tranship.Sender, lines=n), lambda n: domain.open_async("n", tranship.Receiver, lines=n)],
        "max_bytes": [lambda n: domain.pool("n", n)],
        "quota_bytes": [lambda n: domain.admin().set_quota(pool.id, n)],
        "pool": [lambda n: domain.admin().set_quota(n, 1 << 20)],
        "domain": [lambda n: pool.allow_forward(n)],
    }
    for option in ("slots", "chunk_bytes", "keep", "preallocate", "align", "below", "seal_from"):
        calls[option] = [lambda n, option=option: domain.pool("n", 1 << 20, **{option: n})]
    for name, all in calls.items():
        for call in all:
            for number in (-1, 1 << 64):
                with pytest.raises(ValueError, match=rf"^{name} is {number}: .* from 0 to \d+"):
                    call(number)
            with pytest.raises(TypeError, match=name):
                call("many")
    for shape in (-1, (3, -1), (-1, -3), [-2]):
        with pytest.raises(ValueError, match="shape"):
            pool.empty(shape)


def test_parts_are_cut_with_brackets(channel, pool):
    sender, receiver = channel
    buffer = pool.copy(b"0123456789")
    assert (buffer[0], buffer[-1]) == (ord("0"), ord("9"))
    for index in (10, -11):
        with pytest.raises(IndexError, match="10 bytes"):
            buffer[index]
    assert not buffer.readonly
    for cut in (slice(-3, None), slice(2, 5), slice(None, -8), slice(8, 100), slice(5, 2), slice(None)):
        part = buffer[cut]
        assert isinstance(part, tranship.Buffer) and bytes(part) == b"0123456789"[cut]
    with pytest.raises(ValueError, match="step"):
        buffer[::2]
    with pytest.raises(TypeError):
        buffer["a"]
    sender.send(b"in the message")
    assert bytes(receiver.recv()[-7:]) == b"message"


def test_a_listener_generic_in_its_end(domain):
    assert tranship.Listener[tranship.Sender].__origin__ is tranship.Listener


def readable(thing, timeout=0):
    return bool(select.select([thing], [], [], timeout)[0])


def test_a_listener_has_a_descriptor(domain, other):
    with domain.listen("name", tranship.Sender) as listener:
        assert not readable(listener)
        opened = apart(other.open, "name", tranship.Receiver)
        assert readable(listener, None)
        # A connection that was taken ahead of its time is not lost.
        with listener.accept() as sender, opened.result() as receiver:
            sender.send(b"x")
            assert bytes(receiver.recv()) == b"x"
        again = apart(other.open, "name", tranship.Receiver)
        assert readable(listener, None)
        listener.accept(timeout=None).close()
        again.result().close()
        with pytest.raises(TimeoutError):
            listener.accept(timeout=0)
    with pytest.raises(ValueError, match="closed"):
        listener.fileno()


def test_a_connection_that_a_descriptor_told_of_is_there_for_a_task(domain, other):
    import asyncio

    with domain.listen("name", tranship.Receiver) as listener:
        assert not readable(listener)
        opened = apart(other.open, "name", tranship.Sender)
        assert readable(listener, None)
        with asyncio.run(listener.accept_async()) as receiver, opened.result() as sender:
            sender.send(b"x")
            assert bytes(receiver.recv()) == b"x"


def silent(sender):
    """Nothing came back: its descriptor may tell of what is none, but not for ever."""
    while readable(sender):
        assert sender.try_recv_back() is None


def test_a_sender_has_a_descriptor_for_what_comes_back(channel, pool):
    sender, receiver = channel
    silent(sender)
    for round in range(3):
        receiver.send_back(b"one", round)
        receiver.send_back(b"two", round)
        assert readable(sender, None)
        if round == 1:
            assert bytes(sender.recv_back()) == b"one"
        else:
            assert bytes(sender.try_recv_back()) == b"one"
        # Sending between does not lose a message that was taken ahead of its time.
        sender.send(b"meanwhile")
        assert readable(sender, None)
        assert bytes(sender.recv_back(timeout=0)) == b"two"
        silent(sender)
        assert bytes(receiver.recv()) == b"meanwhile"
    receiver.close()
    assert readable(sender, None)
    with pytest.raises(tranship.PeerGone):
        sender.recv_back()


def test_several_things_are_waited_for_together(domain, other, channel):
    sender, receiver = channel
    here, there = socket.socketpair()
    with here, there, domain.listen("name", tranship.Sender) as listener:
        all = [receiver, listener, here, sender]
        assert tranship.wait(all, timeout=0) == []
        assert tranship.wait(all, timeout=0.02) == []
        sender.send(b"x")
        assert tranship.wait(all) == [receiver]
        assert tranship.wait(all) == [receiver]
        assert bytes(receiver.recv()) == b"x"
        assert tranship.wait(all, timeout=0) == []
        there.send(b"y")
        assert tranship.wait(all) == [here]
        opened = apart(other.open, "name", tranship.Receiver)
        while tranship.wait(all) != [listener, here]:
            pass
        with listener.accept(), opened.result():
            here.recv(1)
            receiver.send_back(b"z")
            assert tranship.wait(all) == [sender]
            assert tranship.wait([sender.fileno()]) == [sender.fileno()]
        assert bytes(sender.recv_back()) == b"z"
        # The end is something to take, too.
        sender.close()
        assert tranship.wait([receiver, here]) == [receiver]
        with pytest.raises(ValueError, match="closed"):
            tranship.wait([sender, receiver])
        with pytest.raises(ValueError, match="timeout"):
            tranship.wait([receiver], timeout=-1)
    waits = apart(tranship.wait, [here], timeout=0)
    with pytest.raises(ValueError):
        waits.result()


def test_a_wait_for_several_is_ended_by_another_thread(channel):
    sender, receiver = channel
    waits = apart(tranship.wait, [receiver])
    sender.send(b"x")
    assert waits.result() == [receiver]


SAME_THREAD = """
import sys, time, tranship
with tranship.embedded("a") as a, tranship.connect("b", socket=a.socket_path) as b:
    import threading
    listener = a.listen("x", tranship.Sender)
    opened = []
    thread = threading.Thread(target=lambda: opened.append(b.open("x", tranship.Receiver)))
    thread.start()
    sender = listener.accept()
    thread.join()
    pool = a.pool("p", 1 << 20)
    time.sleep(1.5)  # a receiver agrees by itself in its first second
    sender.send(pool.alloc(10))
"""


def test_a_send_that_waits_for_its_own_thread_says_so_once():
    program = subprocess.Popen([sys.executable, "-c", SAME_THREAD], stderr=subprocess.PIPE, text=True)
    try:
        line = program.stderr.readline()
    finally:
        program.kill()
        rest = program.communicate()[1]
    assert "send" in line and "this process" in line and "pool" in line and "recv" in line, line
    assert rest.count("tranship:") == 0


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
sys.path[:0] = PATH
inner = interpreters.create()
said = interpreters.run_string(inner, f'''
import sys
sys.path[:0] = {sys.path!r}
try:
    import tranship
except ImportError as error:
    print(error)
else:
    domain = tranship.embedded()
    print("open")
''')
print(said)
"""


def test_a_subinterpreter_is_refused():
    try:
        import _interpreters  # noqa: F401
    except ImportError:
        pytest.importorskip("_xxsubinterpreters")
    program = SUBINTERPRETER.replace("PATH", repr(sys.path))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "main interpreter" in run.stdout, run.stdout
