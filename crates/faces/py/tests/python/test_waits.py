"""Ctrl-C ends every wait, and other threads run meanwhile."""

import os
import signal
import sys
import threading
import time
import weakref

import pytest
from conftest import apart, join, until

import tranship


def main_call():
    """The system call that the main thread is in, if its Python is in a test's own lines: by name, or None."""
    frame = sys._current_frames()[threading.main_thread().ident]
    if os.path.basename(frame.f_code.co_filename) != os.path.basename(__file__):
        return None
    call = open(f"/proc/self/task/{os.getpid()}/syscall").read().split()[0]
    return None if call == "running" else POLLS.get(call, "another")


# poll and ppoll, on x86-64 and the other machines.
POLLS = {"7": "poll", "271": "poll", "73": "poll"}


def interrupts(which=("poll", "another")):
    """Strikes the main thread when it waits."""

    def strike():
        until(lambda: main_call() in which)
        os.kill(os.getpid(), signal.SIGINT)

    return apart(strike)


def interrupted(call, *arguments, **how):
    with pytest.raises(KeyboardInterrupt):
        strike = interrupts(**how)
        call(*arguments)
    strike.result()


@pytest.fixture
def full(domain, other):
    sender, receiver = join(domain, other, lines=2)
    sender.send(b"1")
    sender.send(b"2")
    yield sender, receiver


def test_what_finds_the_channel_full_is_dropped_if_so_wanted(domain, full):
    sender, receiver = full
    assert sender.when_full == "wait"
    with pytest.raises(ValueError, match="drop-oldest"):
        sender.when_full = "sometimes"
    sender.when_full = "drop-new"
    assert not sender.send(b"3")
    assert sender.dropped == 1
    assert [bytes(receiver.recv()) for _ in range(2)] == [b"1", b"2"]
    sender.when_full = "drop-oldest"
    # The receiver has still to agree to the pool: that is waited for.
    pool = domain.pool("few", 1 << 20)
    sends = apart(sender.send, pool.copy(b"4"))
    assert bytes(receiver.recv()) == b"4"
    assert sends.result()
    assert sender.send(b"5")
    assert sender.send(b"6")
    assert not sender.send(b"7")
    assert bytes(receiver.recv()) == b"6"
    assert receiver.try_recv() is None
    assert (sender.dropped, receiver.skipped) == (2, 1)


def test_ctrl_c_ends_a_receive(channel):
    _, receiver = channel
    interrupted(receiver.recv)


@pytest.mark.parametrize("wait", ["spin-then-sleep", "spin", "sleep"])
def test_each_way_to_wait_gets_a_message_and_ends(domain, other, wait):
    with domain.listen("c", tranship.Sender, wait=wait) as listener:
        opened = apart(other.open, "c", tranship.Receiver, wait=wait)
        sender = listener.accept()
    with sender, opened.result() as receiver:
        taken = apart(receiver.recv)
        sender.send(b"1")
        assert bytes(taken.result()) == b"1"
        with pytest.raises(TimeoutError):
            receiver.recv(timeout=0.05)
        if wait != "spin":  # which is in no system call that would show that it waits
            interrupted(receiver.recv)


def test_another_way_to_wait_is_an_error(domain):
    for call in (domain.open, domain.listen):
        for end in (tranship.Sender, tranship.Receiver):
            with pytest.raises(ValueError, match="spin-then-sleep"):
                call("c", end, wait="now")


def test_ctrl_c_ends_a_wait_on_descriptors_and_leaves_the_hook_as_it_was(channel):
    _, receiver = channel
    interrupted(receiver.recv, which=["poll"])
    assert signal.set_wakeup_fd(-1) == -1


def test_where_an_event_loop_has_the_hook_it_keeps_it(channel):
    _, receiver = channel
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    try:
        with pytest.raises(TimeoutError):
            receiver.recv(timeout=0.05)
        interrupted(receiver.recv)
        assert os.read(read, 9) == bytes([signal.SIGINT])
    finally:
        assert signal.set_wakeup_fd(-1) == write
        os.close(read)
        os.close(write)


@pytest.fixture
def hook():
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    yield read
    assert signal.set_wakeup_fd(-1) == write
    os.close(read)
    os.close(write)


def test_a_wait_asks_once_for_the_hook_and_passes_on_what_came_meanwhile(channel, hook, monkeypatch):
    _, receiver = channel
    real, asked = signal.set_wakeup_fd, []

    def set_wakeup_fd(fd, **options):
        before = real(fd, **options)
        asked.append(fd)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return before

    monkeypatch.setattr(signal, "set_wakeup_fd", set_wakeup_fd)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with pytest.raises(TimeoutError):
            receiver.recv(timeout=0.3)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(asked) == 2
    assert os.read(hook, 9) == bytes([signal.SIGUSR1])


def test_where_the_hook_cannot_be_had_a_wait_goes_without(channel, monkeypatch):
    sender, receiver = channel

    def refused(fd, **options):
        raise ValueError("only works in the main thread of the main interpreter")

    monkeypatch.setattr(signal, "set_wakeup_fd", refused)
    with pytest.raises(TimeoutError):
        receiver.recv(timeout=0.05)
    interrupted(receiver.recv)


def test_an_exit_with_any_number_in_a_handler_is_no_end_of_an_iteration(channel):
    _, receiver = channel

    def handler(number, frame):
        raise SystemExit(10)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(SystemExit):
            strike = interrupts()
            list(receiver)
        strike.result()
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_an_accept(domain):
    listener = domain.listen("nobody", tranship.Sender)
    interrupted(listener.accept)


def test_ctrl_c_ends_a_connect_to_a_name(domain):
    for end in (tranship.Receiver, tranship.Sender):
        interrupted(domain.open, "nobody", end)


def test_ctrl_c_ends_a_send_and_a_wait_for_taking(full, pool):
    sender, receiver = full
    for call in (lambda: sender.send(b"3"), sender.wait_taken):
        interrupted(call)
    assert [bytes(receiver.recv()) for _ in range(2)] == [b"1", b"2"]


def test_ctrl_c_ends_a_wait_for_consent(domain, pool, peer):
    with domain.listen("work", tranship.Sender) as listener:
        reader = peer("receiver = domain.open('work', tranship.Receiver); say('ready'); hear()")
        sender = listener.accept()
    reader.hear()
    os.kill(reader.process.pid, signal.SIGSTOP)  # a stopped process agrees to nothing
    for call in (lambda: sender.send(pool.alloc(1)), lambda: sender.assign(pool)):
        interrupted(call)
    with pytest.raises(TimeoutError, match="pool"):
        sender.send(pool.alloc(1), timeout=0.03)


def test_ctrl_c_ends_a_wait_for_memory(domain):
    small = domain.pool("small", 1 << 20, chunk_bytes=1 << 16)
    held = small.alloc(1 << 20)
    interrupted(lambda: small.alloc(1 << 20))
    assert len(held) == 1 << 20


def test_a_handler_that_returns_lets_the_wait_go_on(channel):
    sender, receiver = channel
    seen = []

    def handler(number, frame):
        seen.append(number)
        if len(seen) == 3:
            sender.send(b"three")
        else:
            interrupts()

    before = signal.signal(signal.SIGINT, handler)
    try:
        interrupts()
        assert bytes(receiver.recv()) == b"three"
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 3


def test_other_threads_run_while_one_waits(channel):
    sender, receiver = channel
    go = threading.Event()
    waits = apart(lambda: (go.set(), receiver.recv())[1])
    go.wait()
    sender.send(b"from the main thread")
    assert bytes(waits.result()) == b"from the main thread"


def test_other_threads_run_while_one_drops_what_has_to_wait(peer):
    manager = peer("own = tranship.embedded(); say(own.socket_path); hear()")
    socket = manager.hear()
    with tranship.connect("a", socket=socket) as a, tranship.connect("b", socket=socket) as b:
        sender, receiver = join(a, b)
        sender.send(b"x")
        manager.kill()
        done = []
        dropped = weakref.ref(sender)

        def take():
            until(lambda: dropped() is None)
            done.append("takes")
            return bytes(receiver.recv())

        taken = apart(take)
        # As no manager has its last message, it waits until the receiver has.
        del sender
        done.append("dropped")
        assert taken.result() == b"x"
        assert done == ["takes", "dropped"]


def test_closing_ends_another_threads_wait(channel):
    _, receiver = channel
    waits = apart(receiver.recv)
    receiver.close()
    with pytest.raises(ValueError, match="closed"):
        waits.result()


def test_ctrl_c_ends_a_publisher_that_waits_for_a_reliable_subscriber(domain, other):
    with domain.publish("log", depth=2, when_behind=3600) as publisher:
        subscriber = other.subscribe("log", reliable=True)
        until(lambda: publisher.tend() or subscriber.try_recv() is None and subscriber.status()["joined"])
        assert publisher.send(b"0") and publisher.send(b"1")
        interrupted(publisher.send, b"2")
        assert [bytes(subscriber.recv()) for _ in range(2)] == [b"0", b"1"]
        assert publisher.status()["published"] == 2


def test_ctrl_c_and_close_end_a_client_that_waits_for_memory(domain, other):
    with domain.serve("keeps", lines=4) as service:
        connecting = apart(other.client, "keeps", lines=4)
        while connecting.is_alive():
            assert service.try_recv() is None
        with connecting.result() as client:
            held = []

            def fill():
                while True:
                    held.append(client.alloc(16 << 20))

            def fills_no_more():
                before = len(held)
                time.sleep(0.05)
                return before == len(held) and main_call() is not None

            def strike():
                until(fills_no_more)
                os.kill(os.getpid(), signal.SIGINT)

            with pytest.raises(KeyboardInterrupt):
                strikes = apart(strike)
                fill()
            strikes.result()
            waits = apart(fill)
            client.close()
            with pytest.raises(ValueError, match="the client is closed"):
                waits.result()
