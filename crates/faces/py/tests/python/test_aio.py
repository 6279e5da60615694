"""asyncio."""

import asyncio
import select

import pytest
from conftest import apart, join, until

import tranship


def test_messages_are_awaited(channel, pool):
    sender, receiver = channel

    async def main():
        got = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        await sender.send_async(pool.copy(b"first"), 4)
        first = await got
        assert (bytes(first), first.word) == (b"first", 4)
        got = asyncio.create_task(receiver.recv_object_async())
        await sender.send_object_async([1, 2], pool)
        assert await got == [1, 2]

    asyncio.run(main())


def test_async_iteration_ends_with_the_sender(channel, pool):
    sender, receiver = channel

    async def main():
        got = []

        async def take():
            async for message in receiver:
                got.append(bytes(message))

        task = asyncio.create_task(take())
        for number in range(1000):
            await sender.send_async(pool.copy(b"%d" % number))
        sender.close()
        await task
        assert got == [b"%d" % number for number in range(1000)]

    asyncio.run(main())


def test_a_send_waits_for_room_and_can_be_called_off(domain, other, pool):
    sender, receiver = join(domain, other, lines=2)

    async def main():
        first = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        await sender.send_async(pool.copy(b"0"))
        await first
        sender.send(b"1")
        sender.send(b"2")
        waits = asyncio.create_task(sender.send_async(pool.copy(b"3")))
        await asyncio.sleep(0.01)
        assert not waits.done()
        with pytest.raises(RuntimeError, match="send_async"):
            sender.send(b"not now")
        with pytest.raises(RuntimeError, match="send_async"):
            await sender.send_async(pool.copy(b"not now"))
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        waits = asyncio.create_task(sender.send_async(pool.copy(b"4")))
        await asyncio.sleep(0)
        assert bytes(await receiver.recv_async()) == b"1"
        await waits
        assert [bytes(await receiver.recv_async()) for _ in range(2)] == [b"2", b"4"]

    asyncio.run(main())


def test_a_receive_that_is_called_off_takes_nothing(channel):
    sender, receiver = channel

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receiver.recv_async(), 0.01)
        one = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await receiver.recv_async()
        sender.send(b"x")
        assert bytes(await one) == b"x"
        sender.send(b"y")
        assert bytes(receiver.recv()) == b"y"

    asyncio.run(main())


def test_closing_a_receiver_ends_the_task_that_awaits_it(domain, other):
    _, receiver = join(domain, other)

    async def main():
        task = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        receiver.close()
        # A file that gets the number of its descriptor now is not taken for it.
        sender, second = join(domain, other, "second")
        got = asyncio.create_task(second.recv_async())
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="the receiver is closed"):
            await task
        sender.send(b"x")
        assert bytes(await got) == b"x"

    asyncio.run(main())


def test_closing_a_sender_ends_the_task_that_awaits_it(domain, other, pool):
    for end in (tranship.Sender.close, tranship.Sender.abandon):
        sender, receiver = join(domain, other, lines=2)
        sender.send(b"1")
        sender.send(b"2")

        async def main():
            task = asyncio.create_task(sender.send_async([pool.copy(b"3")]))
            await asyncio.sleep(0)
            end(sender)
            with pytest.raises(ValueError, match="the sender is closed"):
                await task

        asyncio.run(main())
        receiver.close()


def test_an_object_waits_for_memory_while_the_loop_runs(domain, other):
    sender, receiver = join(domain, other)
    small = domain.pool("small", 1 << 20, chunk_bytes=1 << 16)

    async def main():
        held = small.alloc(1 << 20)
        task = asyncio.create_task(sender.send_object_async([1, 2], small))
        for _ in range(3):
            await asyncio.sleep(0.001)
        assert not task.done()
        held.release()
        assert await receiver.recv_object_async() == [1, 2]
        await task
        with pytest.raises(tranship.OutOfMemory):
            await sender.send_object_async(bytes(2 << 20), small)

    asyncio.run(main())


def test_many_channels_in_one_loop(domain, other):
    ends = [join(domain, other, f"channel {number}") for number in range(10)]

    async def echo(number):
        sender, receiver = ends[number]
        for turn in range(20):
            text = b"%d %d" % (number, turn)
            task = asyncio.create_task(receiver.recv_async())
            await asyncio.sleep(0)
            sender.send(text)
            assert bytes(await task) == text

    async def main():
        await asyncio.gather(*(echo(number) for number in range(10)))

    asyncio.run(main())


def test_connections_are_awaited(domain, other):
    async def main():
        with domain.listen("meet", tranship.Sender) as listener:
            senders = [asyncio.create_task(listener.accept_async()) for _ in range(2)]
            await asyncio.sleep(0)
            receivers = await asyncio.gather(*(other.open_async("meet", tranship.Receiver) for _ in range(2)))
            senders = await asyncio.gather(*senders)
            for sender in senders:
                sender.send(b"x")
            assert [bytes(await receiver.recv_async()) for receiver in receivers] == [b"x"] * 2
        # The end that comes first waits for the other.
        opened = asyncio.create_task(other.open_async("later", tranship.Sender))
        await asyncio.sleep(0)
        with domain.listen("later", tranship.Receiver) as listener:
            async for receiver in listener:
                (await opened).send(b"y")
                assert bytes(await receiver.recv_async()) == b"y"
                break

    asyncio.run(main())


def test_an_accept_that_is_called_off_takes_no_connection(domain, other):
    async def main():
        with domain.listen("meet", tranship.Receiver) as listener:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(listener.accept_async(), 0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(other.open_async("nobody", tranship.Sender), 0.01)
            sender, receiver = await asyncio.gather(other.open_async("meet", tranship.Sender), listener.accept_async())
            sender.send(b"x")
            assert bytes(receiver.recv()) == b"x"

    asyncio.run(main())


def test_closing_a_listener_ends_the_tasks_that_await_it(domain):
    async def main():
        listener = domain.listen("meet", tranship.Receiver)
        tasks = [asyncio.create_task(listener.accept_async()) for _ in range(2)]
        await asyncio.sleep(0)
        listener.close()
        for task in tasks:
            with pytest.raises(ValueError, match="the listener is closed"):
                await task
        with pytest.raises(ValueError, match="the listener is closed"):
            await listener.accept_async()

    asyncio.run(main())


def test_a_move_waits_for_room_and_can_be_called_off(domain, other, pool):
    sender, receiver = join(domain, other, lines=2)

    async def main():
        first = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        await sender.send_async(pool.copy(b"0"), 7, move=True)
        assert (await first).word == 7
        sender.send(b"1")
        sender.send(b"2")
        buffer = pool.copy(b"3")
        waits = asyncio.create_task(sender.send_async(buffer, move=True))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="was moved"):
            memoryview(buffer)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert bytes(buffer) == b"3"
        waits = asyncio.create_task(sender.send_async(buffer, move=True))
        await asyncio.sleep(0)
        assert [bytes(await receiver.recv_async()) for _ in range(2)] == [b"1", b"2"]
        await waits
        taken = asyncio.create_task(sender.wait_taken_async())
        await asyncio.sleep(0)
        assert not taken.done()
        assert bytes(await receiver.recv_async()) == b"3"
        await taken

    asyncio.run(main())


def test_what_was_to_be_moved_comes_back_when_the_receiver_goes(domain, other, pool):
    sender, receiver = join(domain, other, lines=2)

    async def main():
        buffer = pool.copy(b"kept")
        first = asyncio.create_task(receiver.recv_async())
        await asyncio.sleep(0)
        await sender.send_async(pool.copy(b"agreed"))
        await first
        sender.send(b"1")
        sender.send(b"2")
        waits = asyncio.create_task(sender.send_async(buffer, move=True))
        await asyncio.sleep(0)
        receiver.close()
        with pytest.raises(tranship.PeerGone):
            await waits
        assert bytes(buffer) == b"kept"
        with pytest.raises(tranship.PeerGone):
            await sender.send_async(buffer, move=True)
        assert bytes(buffer) == b"kept"

    asyncio.run(main())


def test_the_descriptor_is_for_any_loop(channel):
    sender, receiver = channel
    fd = receiver.fileno()
    assert receiver.fileno() == fd
    readable = lambda: bool(select.select([fd], [], [], 0)[0])
    until(lambda: receiver.try_recv() is None and not readable())
    sent = apart(lambda: [sender.send(b"1"), sender.send(b"2")])
    select.select([fd], [], [])
    sent.result()
    assert bytes(receiver.try_recv()) == b"1"
    select.select([fd], [], [])  # there is more
    assert bytes(receiver.recv()) == b"2"
    until(lambda: receiver.try_recv() is None and not readable())
    sender.close()
    select.select([fd], [], [])
    with pytest.raises(BrokenPipeError):
        receiver.try_recv()
