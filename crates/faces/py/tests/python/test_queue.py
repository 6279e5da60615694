"""Queues."""

import asyncio
import os

import pytest
from conftest import apart, until

import tranship


@pytest.fixture
def queue(domain, other):
    with domain.produce("jobs", depth=4) as producer, other.consume("jobs") as consumer:
        joined = apart(producer.wait_for, 1)
        until(lambda: consumer.try_recv() is None and not joined.is_alive())
        joined.result()
        yield producer, consumer


def test_an_item_is_the_producers_memory_and_is_acknowledged(queue):
    producer, consumer = queue
    job = producer.alloc(1 << 20)
    memoryview(job)[:5] = b"a job"
    producer.send(job, 60)
    assert job.readonly
    item = consumer.recv(timeout=120)
    assert (item.word, item.redelivered, item.payload.nbytes, bytes(item.payload[:5])) == (60, False, 1 << 20, b"a job")
    assert item.payload.readonly and item.payload is item.payload
    assert producer.status()["open"] == 1
    item.ack()
    with pytest.raises(ValueError, match="the item was acknowledged"):
        item.ack()
    producer.wait_done(120)
    assert producer.status()["sent"] == 1
    assert bytes(item.payload[:5]) == b"a job"


def test_what_is_given_back_comes_again(queue):
    producer, consumer = queue
    producer.send(b"job")
    consumer.recv().requeue()
    found = []
    until(lambda: producer.tend() or found.append(consumer.try_recv()) or found[-1] is not None)
    with pytest.raises(KeyError):
        with found[-1] as item:
            assert item.redelivered
            raise KeyError("the work failed")
    found.clear()
    until(lambda: producer.tend() or found.append(consumer.try_recv()) or found[-1] is not None)
    with found[-1] as item:
        assert bytes(item.payload) == b"job"
    producer.wait_done(120)
    assert producer.status()["redelivered"] == 2


def test_what_is_rejected_is_the_producers_again(queue):
    producer, consumer = queue
    assert producer.take_lost() is None
    producer.send(b"bad job", 7)
    consumer.recv().reject()
    producer.wait_done(120)
    buffer, cause, pid = producer.take_lost()
    assert (bytes(buffer), buffer.word, cause, pid) == (b"bad job", 7, "rejected", os.getpid())


def test_a_full_queue_names_the_consumers(queue):
    producer, consumer = queue
    with pytest.raises((tranship.Full, tranship.TimedOut)):
        for number in range(100):
            producer.send(b"x", number, timeout=0.02)
    items = [consumer.recv() for _ in range(4)]
    assert [item.word for item in items] == [0, 1, 2, 3]
    for item in items:
        item.ack()


def test_an_item_of_a_dead_consumer_goes_to_another(domain, peer):
    producer = domain.produce("mortal")
    producer.send(b"job")
    there = peer("""
consumer = domain.consume("mortal")
item = consumer.recv()
say("taken")
hear()
""")
    until(lambda: producer.tend() or producer.status()["open"] == 1)
    assert there.hear() == "taken"
    there.kill()
    with tranship.connect("second", socket=domain.socket_path) as second, second.consume("mortal") as consumer:
        found = []
        until(lambda: producer.tend() or found.append(consumer.try_recv()) or found[-1] is not None)
        assert found[-1].redelivered and bytes(found[-1].payload) == b"job"
        found[-1].ack()
        producer.wait_done(120)
    producer.close()


def test_items_are_awaited(queue):
    producer, consumer = queue

    async def main():
        got = []

        async def consume():
            async for item in consumer:
                got.append(item.word)
                item.ack()
                if len(got) == 20:
                    return

        task = asyncio.create_task(consume())
        for number in range(20):
            await producer.send_async(b"x", number)
        await task
        assert got == list(range(20))

    asyncio.run(main())


def test_what_cannot_be(domain, pool, queue):
    producer, consumer = queue
    with pytest.raises(tranship.TimedOut):
        consumer.recv(timeout=0.01)
    with pytest.raises(tranship.Error, match="pool"):
        producer.send(pool.copy(b"another pool"))
    with pytest.raises(tranship.Error, match="9 pieces"):
        producer.send([producer.alloc(1) for _ in range(9)])
    with pytest.raises(tranship.NameTaken):
        domain.publish("jobs")
    with pytest.raises(tranship.BadArgument, match="power of two"):
        domain.produce("odd", depth=3)
    consumer.close()
    with pytest.raises(ValueError, match="the consumer is closed"):
        consumer.recv()


def test_pieces_go_as_one_item(queue):
    producer, consumer = queue
    pieces = [producer.alloc(4), producer.alloc(5)]
    for piece, text in zip(pieces, (b"head", b"bytes")):
        memoryview(piece)[:] = text
    producer.send(pieces, 7)
    with consumer.recv() as item:
        assert (item.word, bytes(item.payload), len(item.payload.pieces)) == (7, b"headbytes", 2)


def test_closing_ends_a_task_that_awaits_room(queue):
    producer, _consumer = queue

    async def main():
        for number in range(4):
            await producer.send_async(b"x", number)
        sends = asyncio.create_task(producer.send_async(b"x", 4))
        await asyncio.sleep(0)
        assert producer.status()["sent"] == 4
        producer.close()
        with pytest.raises(ValueError, match="the producer is closed"):
            await sends

    asyncio.run(main())


def test_a_task_that_awaits_an_item_looks_at_no_clock(queue, monkeypatch):
    producer, consumer = queue

    class Loop:
        """What `_until` needs of asyncio, without a way to sleep."""

        get_running_loop = staticmethod(asyncio.get_running_loop)

    monkeypatch.setattr("tranship._aio.asyncio", Loop)

    async def main():
        got = asyncio.create_task(consumer.recv_async())
        await asyncio.sleep(0)
        assert len(consumer.status()["producers"]) == 1  # which ends the future that the task awaits: it begins another
        producer.send(b"told", 4)
        with await got as item:
            return item.word

    assert asyncio.run(main()) == 4
