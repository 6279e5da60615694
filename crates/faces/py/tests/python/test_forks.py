"""What a forked child sees, and spawned ones."""

import multiprocessing
import os
import sys

import pytest
from conftest import apart

import tranship
from tranship import _native


def in_child(what):
    """Runs something in a forked child; its status says whether it returned."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            what()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_is_told_that_its_parents_things_are_not_its_own(domain, other, channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    buffer = pool.copy(b"parent's")
    sender.send(buffer)
    got = first.result()
    fresh = pool.alloc(3)
    listener = domain.listen("name", tranship.Sender)
    calls = [
        lambda: pool.alloc(1),
        lambda: pool.stats(),
        lambda: memoryview(buffer),
        lambda: memoryview(got),
        lambda: memoryview(fresh),
        lambda: got.tobytes(),
        lambda: sender.send(buffer),
        lambda: sender.send(b""),
        lambda: sender.send(fresh, move=True),
        lambda: receiver.recv(),
        lambda: receiver.try_recv(),
        lambda: receiver.fileno(),
        lambda: listener.accept(),
        lambda: domain.admin().stat(),
        lambda: domain.pool("p", 1),
        lambda: domain.open("x", tranship.Receiver),
    ]

    def child():
        for number, call in enumerate(calls):
            with pytest.raises(tranship.Forked, match="fork"):
                call()
                print("call", number, file=sys.stderr)
        assert "parent" in repr(buffer) and buffer.released
        for thing in (buffer, got, fresh):
            thing.release()
        for thing in (sender, receiver, listener, pool, domain):
            thing.close()
        with tranship.connect(socket=socket) as own:
            assert len(own.pool("own", 1 << 20).alloc(10)) == 10

    socket = domain.socket_path
    assert in_child(child) == 0
    # The parent's are as they were.
    sender.send(buffer)
    assert bytes(receiver.recv()) == bytes(got) == b"parent's"
    assert len(fresh) == 3


def test_a_child_does_not_find_its_parents_buffers(pool):
    view = memoryview(pool.alloc(4096))
    assert _native.in_pool(view) is not None

    def child():
        # No byte of it is touched.
        assert _native.in_pool(view) is None

    assert in_child(child) == 0
    assert _native.in_pool(view) is not None


def worker(socket, name):
    with tranship.connect(socket=socket) as domain, domain.open(name, tranship.Sender) as sender:
        pool = domain.pool("worker", 1 << 20)
        sender.send_object({"from": name}, pool)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_of_multiprocessing_connect_anew(domain, method):
    context = multiprocessing.get_context(method)
    with domain.listen(method, tranship.Receiver) as listener:
        process = context.Process(target=worker, args=(domain.socket_path, method))
        process.start()
        with listener.accept() as receiver:
            assert receiver.recv_object() == {"from": method}
            assert list(receiver) == []
        process.join()
    assert process.exitcode == 0
