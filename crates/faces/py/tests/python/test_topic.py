"""Topics."""

import asyncio
import os

import pytest
from conftest import apart, until

import tranship


@pytest.fixture
def topic(domain, other):
    with domain.publish("camera", depth=4, history=1) as publisher, other.subscribe("camera") as subscriber:
        joined = apart(publisher.wait_for, 1)
        until(lambda: subscriber.try_recv() is None and subscriber.status()["joined"])
        joined.result()
        yield publisher, subscriber


def test_a_message_is_the_publishers_memory(topic):
    publisher, subscriber = topic
    frame = publisher.alloc(1 << 20)
    memoryview(frame)[:5] = b"frame"
    assert publisher.send(frame, 60) is True
    assert frame.readonly
    got = subscriber.recv(timeout=120)
    assert (got.word, got.nbytes, bytes(got[:5]), got.readonly) == (60, 1 << 20, b"frame", True)
    assert (got.trust, got.sender_pid, got.id) == ("producer", os.getpid(), frame.id)
    publisher.send(b"in the line", 1)
    inline = subscriber.recv()
    assert (bytes(inline), inline.word, inline.trust) == (b"in the line", 1, None)


def test_an_array_is_published_and_read_only(topic):
    numpy = pytest.importorskip("numpy")
    publisher, subscriber = topic
    array = numpy.asarray(publisher.alloc(64)).view(numpy.float32)
    array[:] = 2.5
    publisher.send(array)
    with pytest.raises(ValueError):
        array[0] = 1
    assert numpy.asarray(subscriber.recv()).view(numpy.float32).sum() == 40.0


def test_what_is_overwritten_is_missed_and_counted(topic):
    publisher, subscriber = topic
    for number in range(10):
        publisher.send(b"%d" % number, number)
    words = []
    while (message := subscriber.try_recv()) is not None:
        words.append(message.word)
    assert words[-1] == 9 and len(words) + subscriber.missed == 10
    status = publisher.status()
    assert status["published"] == 10
    assert [(seen["pid"], seen["behind"]) for seen in status["subscribers"]] == [(os.getpid(), 0)]


@pytest.mark.parametrize(("history", "words"), [(None, [1, 2, 3]), (2, [2, 3]), (0, [])])
def test_a_late_subscriber_gets_as_much_of_the_history_as_it_asks_for(domain, other, history, words):
    with domain.publish("late", depth=8, history=3) as publisher:
        for number in range(4):
            publisher.send(b"%d" % number, number)
        with other.subscribe("late", history=history) as subscriber:
            joined, came = apart(publisher.wait_for, 1), []

            def has_all():
                came.extend(message.word for message in [subscriber.try_recv()] if message is not None)
                return subscriber.status()["joined"] and len(came) >= len(words)

            until(has_all)
            joined.result()
            publisher.send(b"new", 9)
            came.append(subscriber.recv(timeout=120).word)
            assert came == [*words, 9]


def test_iterating_ends_with_the_topic_and_recv_waits_for_the_next(domain, topic):
    publisher, subscriber = topic
    publisher.send(b"last")
    publisher.close()
    assert [bytes(message) for message in subscriber] == [b"last"]
    with pytest.raises(tranship.TimedOut, match="no publisher of topic `camera` has taken this subscriber in"):
        subscriber.recv(timeout=0.01)
    with domain.publish("camera") as again:
        got = apart(subscriber.recv)
        again.wait_for(1)
        again.send(b"back")
        assert bytes(got.result()) == b"back"


def test_waits_say_for_what_and_how_long(topic):
    publisher, subscriber = topic
    with pytest.raises(tranship.TimedOut, match=r"timed out after \d+ ms: no message of topic `camera` came"):
        subscriber.recv(timeout=0.05)
    with pytest.raises(tranship.TimedOut, match="topic `camera` has 1 subscribers, not 2"):
        publisher.wait_for(2, timeout=0.03)


def test_a_reliable_subscriber_is_waited_for_or_the_new_message_is_dropped(domain, other):
    with domain.publish("log", depth=2, when_behind="drop-new") as publisher:
        subscriber = other.subscribe("log", reliable=True)
        until(lambda: publisher.tend() or subscriber.try_recv() is None and subscriber.status()["joined"])
        sent = [publisher.send(b"x", number) for number in range(4)]
        assert sent == [True, True, False, False]
        assert publisher.status()["dropped"] == 2
        assert [subscriber.recv().word for _ in range(2)] == [0, 1]
    with domain.publish("calm", depth=2, when_behind=0.01) as publisher:
        subscriber = other.subscribe("calm", reliable=True)
        until(lambda: publisher.tend() or subscriber.try_recv() is None and subscriber.status()["joined"])
        assert all(publisher.send(b"x") for _ in range(3))
        assert publisher.status()["demoted"] == 1


def test_memory_that_subscribers_keep_is_named(domain, other):
    with domain.publish("small", depth=2, slots=4, max_bytes=1 << 20) as publisher, other.subscribe("small") as viewer:
        kept = []
        until(lambda: publisher.tend() or viewer.try_recv() is None and viewer.status()["joined"])
        publisher.alloc(1000).release()  # from here on the pool needs no memory of the manager's
        with pytest.raises(tranship.OutOfMemory, match=f"process {os.getpid()}.* keeps"):
            while True:
                publisher.send(publisher.alloc(1000, timeout=0.02))
                kept.append(viewer.recv())
        kept.clear()
        assert viewer.try_recv() is None  # which gives back what was dropped
        publisher.alloc(1000, timeout=120)


def test_what_cannot_be_published_is_refused(domain, pool, topic):
    publisher, _ = topic
    with pytest.raises(tranship.Error, match="own pool of topic camera"):
        publisher.send(pool.copy(b"another pool"))
    with pytest.raises(tranship.Error, match="an aggregate of 9 pieces is too large for topic camera"):
        publisher.send([publisher.alloc(1) for _ in range(9)])
    with pytest.raises(tranship.OutOfMemory, match="41 bytes"):
        publisher.send(bytes(41))
    with pytest.raises(tranship.NameTaken):
        domain.publish("camera")
    with pytest.raises(tranship.BadArgument, match="power of two"):
        domain.publish("odd", depth=3)
    with pytest.raises(ValueError, match="when_behind"):
        domain.publish("odd", when_behind="never")


def test_closed_ends_say_so_and_wake_their_waiters(topic):
    publisher, subscriber = topic
    waits = apart(subscriber.recv)
    subscriber.close()
    with pytest.raises(ValueError, match="the subscriber is closed"):
        waits.result()
    publisher.close()
    with pytest.raises(ValueError, match="the publisher is closed"):
        publisher.send(b"x")


def test_messages_are_awaited(topic):
    publisher, subscriber = topic

    async def main():
        got = asyncio.create_task(subscriber.recv_async())
        await asyncio.sleep(0)
        frame = await publisher.alloc_async(9)
        memoryview(frame)[:] = b"a message"
        publisher.send(frame)
        assert bytes(await got) == b"a message"
        publisher.send(b"1")
        publisher.send(b"2")
        publisher.close()
        assert [bytes(message) async for message in subscriber] == [b"1", b"2"]

    asyncio.run(main())


def test_pieces_go_as_one_message(domain, other):
    with domain.publish("parts", pieces=2) as publisher, other.subscribe("parts") as subscriber:
        joined = apart(publisher.wait_for, 1)
        until(lambda: subscriber.try_recv() is None and subscriber.status()["joined"])
        joined.result()
        pieces = [publisher.alloc(4), publisher.alloc(5)]
        for piece, text in zip(pieces, (b"head", b"bytes")):
            memoryview(piece)[:] = text
        publisher.send(pieces, 7)
        got = subscriber.recv()
        assert (got.word, bytes(got), [piece.id for piece in got.pieces]) == (7, b"headbytes", [piece.id for piece in pieces])
        with pytest.raises(tranship.Error, match="an aggregate of 3 pieces"):
            publisher.send([publisher.alloc(1) for _ in range(3)])


def test_several_publishers_share_a_name(domain, other):
    with domain.publish("shared", shared=True) as one, other.publish("shared", shared=True) as two:
        with tranship.connect("viewer", socket=domain.socket_path) as third, third.subscribe("shared") as viewer:
            waits = [apart(publisher.wait_for, 1) for publisher in (one, two)]
            until(lambda: viewer.try_recv() is None and not any(wait.is_alive() for wait in waits))
            one.send(b"one")
            two.send(b"two")
            assert {bytes(viewer.recv()) for _ in range(2)} == {b"one", b"two"}


def blocked(domain, other, name):
    """A publisher whose ring is full, and that waits for a reliable subscriber without end."""
    publisher = domain.publish(name, depth=2, when_behind=3600)
    subscriber = other.subscribe(name, reliable=True)
    until(lambda: publisher.tend() or subscriber.try_recv() is None and subscriber.status()["joined"])
    assert publisher.send(b"0", 0) and publisher.send(b"1", 1)
    return publisher, subscriber


def test_a_send_that_waits_goes_on_when_there_is_room(domain, other):
    publisher, subscriber = blocked(domain, other, "log")
    sends = apart(publisher.send, b"2", 2)
    assert publisher.status()["published"] == 2  # another thread looks while it waits
    assert [subscriber.recv().word for _ in range(3)] == [0, 1, 2]
    assert sends.result()


def test_closing_ends_a_send_that_waits(domain, other):
    publisher, subscriber = blocked(domain, other, "log")
    sends = apart(publisher.send, b"2", 2)
    publisher.close()
    with pytest.raises(ValueError, match="the publisher is closed"):
        sends.result()
    assert [bytes(message) for message in subscriber] == [b"0", b"1"]


def test_a_send_is_awaited(domain, other):
    publisher, subscriber = blocked(domain, other, "log")

    async def main():
        sends = asyncio.create_task(publisher.send_async(b"2", 2))
        await asyncio.sleep(0)
        words = [(await subscriber.recv_async()).word for _ in range(3)]
        return words, await sends

    assert asyncio.run(main()) == ([0, 1, 2], True)
    given_up, _kept = blocked(domain, other, "more")

    async def cancelled():
        sends = asyncio.create_task(given_up.send_async(b"2", 2))
        await asyncio.sleep(0)
        sends.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sends

    asyncio.run(cancelled())
    assert given_up.status()["published"] == 2


def test_a_task_that_awaits_a_message_looks_at_no_clock(topic, monkeypatch):
    publisher, subscriber = topic
    class Loop:
        """What `_until` needs of asyncio, without a way to sleep."""

        get_running_loop = staticmethod(asyncio.get_running_loop)

    monkeypatch.setattr("tranship._aio.asyncio", Loop)

    async def main():
        got = asyncio.create_task(subscriber.recv_async())
        await asyncio.sleep(0)
        assert subscriber.status()["joined"]  # which ends the future that the task awaits: it begins another
        with pytest.raises(RuntimeError, match="another task awaits this subscriber"):
            await subscriber.recv_async()
        publisher.send(b"told", 4)
        return (await got).word

    assert asyncio.run(main()) == 4


def test_a_closed_subscriber_ends_its_task(topic):
    _, subscriber = topic

    async def main():
        got = asyncio.create_task(subscriber.recv_async())
        await asyncio.sleep(0)
        subscriber.close()
        with pytest.raises(ValueError, match="the subscriber is closed"):
            await got

    asyncio.run(main())


def test_a_publisher_that_dies_is_named_and_its_successor_found(domain, peer):
    there = peer("""
publisher = domain.publish("radar")
say("there")
publisher.wait_for(1)
publisher.send(b"before")
say("sent")
hear()
""")
    there.hear()
    subscriber = domain.subscribe("radar")
    assert bytes(subscriber.recv()) == b"before"
    there.kill()
    with pytest.raises(tranship.PeerDied, match="the publisher of topic radar died"):
        subscriber.recv()
