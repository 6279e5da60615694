"""Many messages by one call, and components outside of a program."""

import pytest
from conftest import apart

import tranship
from tranship.component import Component


@pytest.fixture
def channel(domain):
    with domain.listen("local:many", tranship.Receiver, lines=8) as listener:
        with domain.open("local:many", tranship.Sender, lines=8) as sender, listener.accept() as receiver:
            yield sender, receiver


def test_many_go_and_come_by_one_call(channel, pool):
    sender, receiver = channel
    buffers = [pool.copy(bytes([n]) * 100) for n in range(4)]
    assert sender.send_many([*buffers, b"inline"], words=[1, 2, 3]) == 5
    got = receiver.recv_many(3)
    assert [(bytes(one[:1]), one.word) for one in got] == [(b"\0", 1), (b"\1", 2), (b"\2", 3)]
    got = receiver.recv_many()
    assert [(bytes(one), one.word) for one in got] == [(b"\3" * 100, 0), (b"inline", 0)]
    assert receiver.recv_many(0) == [] and sender.send_many([]) == 0


def test_as_many_go_as_there_is_room_for(channel):
    sender, receiver = channel
    payloads = [bytes([n]) for n in range(20)]
    assert sender.send_many(payloads, timeout=0) == 8
    with pytest.raises(tranship.Full):
        sender.send_many(payloads, timeout=0)
    sends = apart(sender.send_many, payloads)
    got = []
    while len(got) < 28:
        got += receiver.recv_many(5)
    assert sends.result() == 20
    assert [bytes(one) for one in got] == payloads[:8] + payloads
    with pytest.raises(tranship.TimedOut):
        receiver.recv_many(timeout=0.001)
    sender.send_many([b"last"])
    sender.close()
    assert [bytes(one) for one in receiver.recv_many()] == [b"last"]
    with pytest.raises(tranship.PeerGone):
        receiver.recv_many()


def test_a_component_is_started_by_a_program(monkeypatch):
    monkeypatch.delenv("TRANSHIP_COMPONENT", raising=False)
    with pytest.raises(tranship.BadArgument, match="tranship run"):
        Component()
