"""`tranship.mp`: multiprocessing, with large data by reference, among processes of every start method."""

import concurrent.futures
import gc
import os
import pathlib
import pickle
import queue
import random
import secrets
import signal
import subprocess
import sys

import ml_dtypes
import numpy
import pytest
from conftest import apart, shared_names, until
from pages import shown

import tranship
import tranship.mp as mp
from tranship import _family

HERE = pathlib.Path(__file__).resolve().parent
METHODS = ["spawn", "forkserver", "fork"]
# The fork server imports this file once, and not each of its children.
mp.set_forkserver_preload([__name__, "tranship.mp"])
TORTURE = bool(os.environ.get("TRANSHIP_TORTURE"))
KILLS = int(os.environ.get("TRANSHIP_KILLS") or (2000 if TORTURE else 24))


@pytest.fixture(params=METHODS)
def context(request):
    return mp.get_context(request.param)


def started(context, target, *arguments):
    # A test that fails leaves nobody waiting: a daemon ends with its parent.
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def ended(process):
    process.join()
    assert process.exitcode == 0


def layouts():
    """Arrays of every layout that goes by reference, and of those that go as they always did."""
    rng = numpy.random.default_rng(1)
    base = rng.random((1500, 160, 3))
    record = numpy.zeros(10_000, [("a", "u1"), ("b", ">f8"), ("c", "U3")])
    record["b"] = rng.random(10_000)
    masked = numpy.ma.masked_array(rng.random(20_000), rng.random(20_000) > 0.5)
    return {
        "C": base,
        "Fortran": numpy.asfortranarray(base),
        "strided": base[::2, 5:30:3],
        "backwards": base[::-1, :, ::-1],
        "transposed": base.transpose(2, 0, 1),
        "broadcast": numpy.broadcast_to(base[0], (5, *base[0].shape)),
        "no bytes": base[:0],
        "0-d": numpy.array(1.5),
        "record": record,
        "recarray": record.view(numpy.recarray),
        "masked": masked,
        "dates": numpy.arange("2000-01-01", "2010-01-01", dtype="datetime64[D]"),
        "swapped": base.astype(">f4"),
        "bfloat16": base.astype(ml_dtypes.bfloat16),
        "float8": base.astype(ml_dtypes.float8_e4m3fn),
        "objects": numpy.array([{"a": 1}, None] * 1000),
        "small": numpy.arange(10),
        "born": mp.array(base),
        "part of one born": mp.array(base)[10:50, ::2],
    }


def the_same(left, right):
    if not isinstance(left, numpy.ndarray):
        return left == right
    kind = type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
    if isinstance(left, numpy.ma.MaskedArray):
        return kind and bool((left.mask == right.mask).all()) and bool((left == right).all())
    if left.dtype.hasobject:
        return kind and left.tolist() == right.tolist()
    return kind and left.tobytes() == right.tobytes()


def echo(inbox, outbox):
    while (item := inbox.get()) is not None:
        outbox.put(item)
        del item


def test_a_queue_carries_every_layout(context):
    there, back = context.Queue(), context.Queue()
    process = started(context, echo, there, back)
    for name, array in layouts().items():
        there.put(array)
        assert the_same(array, back.get()), name
        there.put({"deep": [array, 1]})
        assert the_same(array, back.get()["deep"][0]), name
    for plain in (1, "text", b"bytes", 2.5, {1, 2}, bytes(100_000), tranship.BadArgument):
        there.put(plain)
        assert back.get() == plain
    there.put(None)
    ended(process)


def echo_pipe(end):
    while (item := end.recv()) is not None:
        end.send(item)
        del item


def test_a_pipe_carries_every_layout():
    context = mp.get_context("forkserver")
    here, there = context.Pipe()
    process = started(context, echo_pipe, there)
    for name, array in layouts().items():
        here.send([array])
        assert the_same(array, here.recv()[0]), name
    buffer = _family.family().pool.copy(bytes(range(256)) * 1000)
    here.send(buffer)
    got = here.recv()
    assert type(got) is tranship.Buffer and bytes(got) == bytes(buffer)
    here.send(None)
    ended(process)


def look(inbox, outbox):
    while (array := inbox.get()) is not None:
        outbox.put((shown(array), array.flags.writeable))


def test_an_item_is_the_same_physical_pages(context):
    there, back = context.Queue(), context.Queue()
    process = started(context, look, there, back)
    for nbytes in (1 << 16, 16 << 20):
        array = mp.empty(nbytes // 8)
        array[:] = nbytes
        before = shown(array)
        there.put(array)
        (place, frames), writeable = back.get()
        after = shown(array)
        assert place == before[0] == after[0] and not writeable
        assert not array.flags.writeable
        if before[1] == after[1] and all(before[1]):
            assert frames == before[1]
    there.put(None)
    ended(process)


def test_a_foreign_array_is_copied_once_and_stays_writable():
    line = mp.Queue()
    array = numpy.arange(10_000)
    line.put(array)
    array[:] = 0
    got = line.get()
    assert got[-1] == 9999 and not got.flags.writeable


def puts(line, count):
    for number in range(count):
        line.put(numpy.full(1000, number))


def test_nothing_is_lost_when_a_process_ends_after_put(context):
    line = context.Queue()
    ended(started(context, puts, line, 300))
    assert line.qsize() == 300
    assert [int(line.get(timeout=0)[-1]) for _ in range(300)] == list(range(300))
    assert line.empty()


def takes(line, total):
    while (item := line.get()) is not None:
        total.put((os.getpid(), int(item[0])))
        line.task_done()


def test_each_item_goes_to_one_of_several():
    context = mp.get_context("forkserver")
    line, total = context.JoinableQueue(), context.Queue()
    takers = [started(context, takes, line, total) for _ in range(3)]
    givers = [started(context, puts, line, 50) for _ in range(2)]
    for giver in givers:
        ended(giver)
    line.join()
    got = [total.get()[1] for _ in range(100)]
    assert sorted(got) == sorted([*range(50)] * 2) and total.empty()
    for _ in takers:
        line.put(None)
    for taker in takers:
        ended(taker)
    with pytest.raises(ValueError):
        for _ in range(4):
            line.task_done()


def takes_two(line, taken):
    line.get()
    line.get()
    line.task_done()
    taken.put(None)
    signal.pause()


def test_items_of_a_process_that_was_killed_stop_no_join():
    context = mp.get_context("forkserver")
    line, taken = context.JoinableQueue(), context.Queue()
    for number in range(3):
        line.put(number)
    worker = started(context, takes_two, line, taken)
    taken.get()
    worker.kill()
    worker.join()
    assert line.get() == 2
    line.task_done()
    with pytest.raises(tranship.PeerDied, match=f"1 items .* process {worker.pid}"):
        line.join()
    line.join()
    line.put(3)
    assert line.get() == 3
    line.task_done()
    line.join()


def test_a_queue_is_bounded_and_can_be_waited_for():
    line = mp.Queue(2)
    line.put(1)
    line.put(2)
    assert line.full()
    with pytest.raises(queue.Full):
        line.put(3, timeout=0.02)
    with pytest.raises(queue.Full):
        line.put_nowait(3)
    waits = apart(line.put, 3)
    assert line.get() == 1
    waits.result()
    assert (line.get(), line.get()) == (2, 3)
    with pytest.raises(queue.Empty):
        line.get(timeout=0.02)
    with pytest.raises(queue.Empty):
        line.get_nowait()
    late = apart(line.get)
    line.put("late")
    assert late.result() == "late"


def test_a_reference_is_taken_once_and_says_so():
    sent = mp.reduction.ForkingPickler.dumps(numpy.zeros(20_000))
    assert len(sent) < 1000
    assert len(mp.reduction.ForkingPickler.loads(sent)) == 20_000
    with pytest.raises(ValueError, match="was taken already"):
        mp.reduction.ForkingPickler.loads(sent)


def double(array):
    return array * 2


def add(array, number):
    return array + number


def test_pools_and_executors_take_references(context):
    arrays = [numpy.full(20_000, number) for number in range(4)]
    with context.Pool(2) as pool:
        assert [int(one[0]) for one in pool.map(double, arrays)] == [0, 2, 4, 6]
    for kind in (tranship.Executor, concurrent.futures.ProcessPoolExecutor):
        with kind(2, mp_context=context) as executor:
            assert [int(one[-1]) for one in executor.map(double, arrays)] == [0, 2, 4, 6]
            assert int(executor.submit(add, arrays[1], number=5).result()[0]) == 6


def dies(array):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_executor_says_which_worker_died_and_leaks_nothing():
    pool = _family.family().domain.pool("small", 4 << 20, allow_forward=True)
    array = pool.zeros(3 << 20, "u1")
    with tranship.Executor(2) as executor:
        future = executor.submit(dies, array)
        with pytest.raises(concurrent.futures.process.BrokenProcessPool):
            future.result()
    assert list(executor.died.values()) == [-signal.SIGKILL]
    del array, future
    gc.collect()
    pool.alloc(3 << 20).release()  # all of its memory is back


def consumes(line, done, store):
    key = secrets.token_bytes(8)  # a process number comes again
    while True:
        item = line.get()
        assert store.get("shared")[-1] == 4095
        store.put(key, item)
        done.put(int(item[0]))
        store.delete(key)
        del item


def test_killed_workers_stop_neither_queue_nor_store_and_keep_no_memory():
    seed = int(os.environ.get("TRANSHIP_SEED", 0)) or random.randrange(1 << 32)
    print("TRANSHIP_SEED =", seed)
    rng = random.Random(seed)
    context = mp.get_context("forkserver")
    line, done = context.Queue(), context.Queue()
    store = tranship.Store.create("of killed workers")
    store.put("shared", numpy.arange(4096), pin=True)
    total = _family.family().domain.admin()
    orphans = lambda: sum(not pool["writer_alive"] for pool in total.stat()["pools"])  # noqa: E731
    put, taken, before = 0, 0, orphans()
    for _ in range(KILLS):
        worker = started(context, consumes, line, done, store)
        for _ in range(rng.randrange(1, 60)):
            line.put(numpy.full(4096, put))
            put += 1
            if rng.random() < 0.3 or line.qsize() > 100:
                done.get()
                taken += 1
        worker.kill()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        # An answer that stays here keeps its dead writer's memory.
        while True:
            try:
                done.get_nowait()
            except queue.Empty:
                break
            taken += 1
    # A last worker takes what is left. Each worker that was killed had at most one item in its hands.
    worker = started(context, consumes, line, done, store)
    until(line.empty)
    line.put(numpy.full(4096, -1))
    rest = []
    while (number := done.get()) != -1:
        rest.append(number)
    worker.kill()
    worker.join()
    assert put - KILLS <= taken + len(rest) <= put
    assert len(set(rest)) == len(rest)
    # A killed worker can leave its value, and no more.
    assert store.get("shared").sum() == sum(range(4096))
    assert store.nbytes <= (KILLS + 2) * (4096 * 8 + 1024)
    store.close()
    # Neither their memory nor anybody who could keep it is left.
    until(lambda: orphans() <= before)
    here = os.getpid()
    until(lambda: all(domain["pid"] == here or os.path.exists(f"/proc/{domain['pid']}") for domain in total.stat()["domains"]))


def holds(line, ready):
    array = line.get()
    ready.put(int(array[0]))
    signal.pause()


def test_a_value_outlives_its_dead_writer():
    context = mp.get_context("forkserver")
    line, ready = context.Queue(), context.Queue()
    ended(started(context, puts, line, 1))
    # The writer is gone, and a third process asks.
    worker = started(context, holds, line, ready)
    assert ready.get() == 0
    worker.kill()
    worker.join()


def writes(name, block, listed):
    same = mp.shared_memory.SharedMemory(name)
    same.buf[0] = 1
    block.buf[1] = 2
    listed[0] = "written"


def is_gone(name):
    try:
        mp.shared_memory.SharedMemory(name).close()
    except FileNotFoundError:
        return True
    return False


def test_a_block_is_written_by_all_and_freed_by_the_last(context):
    # The queues of other tests have semaphores.
    blocks = lambda: {name for name in shared_names(os.getpid()) if not name.startswith("/dev/shm/sem.")}  # noqa: E731
    before = blocks()
    block = mp.shared_memory.SharedMemory(create=True, size=5000)
    listed = mp.shared_memory.ShareableList(["text that is long", 2])
    assert bytes(block.buf) == bytes(5000)
    ended(started(context, writes, block.name, block, listed))
    assert bytes(block.buf[:2]) == b"\1\2" and listed[0] == "written"
    assert blocks() <= before
    array = numpy.frombuffer(block.buf, "u1")
    with pytest.raises(BufferError):
        block.close()
    del array
    block.close()
    until(lambda: is_gone(block.name))  # the child has ended without closing it
    block.unlink()  # as programs do after close()
    listed.shm.close()


def test_what_multiprocessing_has_is_here():
    import multiprocessing

    for name in multiprocessing.__all__:
        assert hasattr(mp, name), name
    for module in ("connection", "managers", "pool", "synchronize", "sharedctypes"):
        assert getattr(mp, module).__name__ == f"multiprocessing.{module}"
    assert mp.get_start_method() == "forkserver"
    with pytest.raises(AttributeError, match="nonsense"):
        mp.nonsense
    with pytest.raises(ValueError, match="sporn"):
        mp.get_context("sporn")


def asks(store, outbox):
    outbox.put([store.get("first")["x"], store.wait("second")])
    store.put("answer", numpy.ones(10_000))
    try:
        store.get("nothing")
    except KeyError as error:
        outbox.put(error.args)


def test_a_store_keeps_values_for_all(context):
    with tranship.Store.create(f"store-{context.get_start_method()}", quota_bytes=1 << 20) as store:
        outbox = context.Queue()
        store.put("first", {"x": numpy.arange(5000)})
        process = started(context, asks, store, outbox)
        store.put(b"second", "later")
        first, second = outbox.get()
        assert first[-1] == 4999 and not first.flags.writeable and second == "later"
        assert outbox.get() == ("nothing",)
        ended(process)
        assert store.get("answer").sum() == 10_000
        with pytest.raises(tranship.NameTaken, match="delete it"):
            store.put("first", 2)
        held = store.get("first")
        store.pin("answer")
        for number in range(10):
            store.put(f"more {number}", numpy.full(40_000, number))
        assert store.nbytes <= 1 << 20
        with pytest.raises(KeyError):
            store.get("first")
        assert held["x"][-1] == 4999 and store.get("answer").sum() == 10_000
        with pytest.raises(MemoryError, match="1048576"):
            store.put("large", numpy.zeros(1 << 18))
        store.unpin("answer")
        store.delete("answer")
        with pytest.raises(KeyError):
            store.delete("answer")
        with pytest.raises(tranship.TimedOut, match="'never'"):
            store.wait("never", 0.01)


def test_a_stranger_joins_a_store_by_its_name(domain, peer):
    with tranship.Store.create("models", domain=domain) as store:
        store.put("weights", numpy.arange(3000))
        other = peer("say(tranship.Store('models', domain=domain).get('weights').sum())")
        assert other.hear() == str(sum(range(3000)))
        other.end()
        with pytest.raises(tranship.NameTaken):
            tranship.Store.create("models", domain=domain)


def reads(handle, outbox, keeps):
    reader = tranship.Broadcast.create_from_handle(handle)
    reader.wait_until_ready()
    kept = []
    try:
        while True:
            got = reader.dequeue()
            outbox.put((os.getpid(), got["number"], float(got["array"].sum()), got["array"].flags.writeable))
            if keeps:
                kept.append(got)
    except tranship.PeerGone as error:
        outbox.put((os.getpid(), "end", str(error)))


def test_a_broadcast_goes_to_all_readers(context):
    writer, outbox = tranship.Broadcast(2), context.Queue()
    readers = [started(context, reads, writer.export_handle(), outbox, keeps) for keeps in (False, True)]
    writer.wait_until_ready()
    sizes = [10, 1000, 100_000, 1_000_000]
    for number, size in enumerate(sizes):
        writer.enqueue({"number": number, "array": numpy.full(size, 1.0)})
    writer.shutdown()
    got = {}
    for _ in range(2 * len(sizes) + 2):
        pid, *what = outbox.get()
        got.setdefault(pid, []).append(what)
    for said in got.values():
        assert [(one[0], one[1]) for one in said[:-1]] == [*enumerate(sizes)]
        assert said[-1][0] == "end" and "shut down" in said[-1][1]
    assert len(got) == 2
    for reader in readers:
        ended(reader)


def stalls(handle, outbox):
    reader = tranship.Broadcast.create_from_handle(handle)
    reader.wait_until_ready()
    try:
        reader.dequeue(timeout=0.01)
    except tranship.TimedOut:
        outbox.put(os.getpid())
    signal.pause()


def test_a_reader_that_takes_nothing_is_named():
    context = mp.get_context("forkserver")
    writer, outbox = tranship.Broadcast(1, max_chunks=4), context.Queue()
    reader = started(context, stalls, writer.export_handle(), outbox)
    writer.wait_until_ready()
    pid = outbox.get()
    with pytest.raises(tranship.Full, match=rf"process {pid} has \d+ messages to take"):
        for number in range(100):
            writer.enqueue(number, timeout=0.02)
    reader.kill()
    reader.join()
    # Nobody is left who is waited for.
    writer.enqueue("after")
    writer.shutdown()


def test_both_sides_of_a_broadcast_say_what_they_are_not():
    writer = tranship.Broadcast(1)
    with pytest.raises(ValueError, match="readers dequeue"):
        writer.dequeue()
    with pytest.raises(TypeError, match="export_handle"):
        pickle.dumps(writer)
    reader = tranship.Broadcast.create_from_handle(writer.export_handle())
    with pytest.raises(ValueError, match="writer enqueues"):
        reader.enqueue(1)
    with pytest.raises(tranship.TimedOut):
        reader.dequeue(timeout=0.01)
    writer.wait_until_ready(timeout=120)
    with pytest.raises(tranship.TimedOut):
        tranship.Broadcast(1).wait_until_ready(timeout=0.01)
    with pytest.raises(ValueError, match="on this one"):
        tranship.Broadcast(3, 1)
    writer.shutdown(timeout=0.01)
    reader.shutdown()


BEFORE = {
    "queue_workers": ("import tranship.mp as mp", "import multiprocessing as mp"),
    "pipe_pair": ("import tranship.mp as mp", "import multiprocessing as mp"),
    "pool_map": ("import tranship.mp as mp", "import multiprocessing as mp"),
    "shared_block": ("from tranship.mp import Process, shared_memory", "from multiprocessing import Process, shared_memory"),
    "executor": ("from tranship import Executor as ProcessPoolExecutor", "from concurrent.futures import ProcessPoolExecutor"),
}


@pytest.mark.parametrize("name", sorted(BEFORE))
def test_a_program_differs_in_its_import_line_alone(name, tmp_path):
    text = (HERE.parents[4] / f"examples/python/{name}.py").read_text()
    line, before = BEFORE[name]
    assert text.count(f"{line}\n") == 1
    said = []
    for what in (text, text.replace(line, before)):
        program = tmp_path / "program.py"
        program.write_text(what)
        said.append(subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout)
    assert said[0] == said[1] != ""
