"""Awaiting in asyncio: the running loop watches the object's descriptor."""

import asyncio

from . import _objects
from ._errors import Full, OutOfMemory, PeerGone


def _wake(future):
    if not future.done():
        future.set_result(None)


async def _readable(loop, doorbell):
    future = loop.create_future()
    fd = doorbell.fileno()
    loop.add_reader(fd, _wake, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


# Ends that a task awaits: a loop has one callback for each descriptor.
_awaited: set[object] = set()


async def _until(end, look, what):
    loop = asyncio.get_running_loop()
    if end in _awaited:
        raise RuntimeError(f"another task awaits this {what} already")
    # Kept: were its descriptor closed with the end, the loop would not hear of it, and could take the next of that number for it.
    doorbell = end._doorbell()
    _awaited.add(end)
    try:
        while (found := look()) is None:
            await _readable(loop, doorbell)
        return found
    finally:
        _awaited.discard(end)


async def awaited(pending):
    loop = asyncio.get_running_loop()
    try:
        while (made := pending.look()) is None:
            await _readable(loop, pending)
        return made[0]
    finally:
        pending.cancel()


async def recv(receiver):
    return await _until(receiver, receiver.try_recv, "receiver")


async def recv_object(receiver):
    return _objects.unpacked(await recv(receiver))


async def recv_array(receiver):
    return _objects.array(await recv(receiver))


async def single(end, what, *given):
    """Awaits the one future of a topic's end, or a queue's."""
    try:
        return await _until(end, lambda: end._look(*given), what)
    finally:
        end._rest()


async def following(message):
    try:
        return await message
    except PeerGone:
        raise StopAsyncIteration from None


async def item(coming):
    """The next item of a call; None ends the iteration."""
    if (came := await coming) is None:
        raise StopAsyncIteration
    return came


async def _finished(sender, *to_move):
    done = False
    try:
        await _until(sender, lambda: sender._look() or None, "sender")
        done = True
    finally:
        if not done:
            sender._cancel(*to_move)


async def send(sender, payload, word=0, move=False):
    if not sender._begin(payload, word, move):
        await _finished(sender, *([payload] if move else []))


# No sender tells of room for what goes back: a receiver looks.
_ROOM = 0.02


async def send_back(receiver, payload, word, released):
    while True:
        try:
            return receiver.send_back(payload, word, released=released)
        except Full:
            await asyncio.sleep(_ROOM)


async def taken(sender):
    if not sender._begin_taken():
        await _finished(sender)


# Between two tries for memory, of which no descriptor tells: the first, and the longest.
_SOON, _LATE = 0.001, 0.02


async def alloc(sender, nbytes):
    return await _when_there(lambda: sender.alloc(nbytes, timeout=0))


async def _copied(pool, data):
    return await _when_there(lambda: pool.copy(data, timeout=0))


async def _when_there(make):
    pause = _SOON
    while True:
        try:
            return make()
        except OutOfMemory as error:
            if error.kind != "OutOfMemory":  # it will never be there
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LATE)


async def _send_parts(sender, parts, word, pool):
    for at, part in enumerate(parts):
        if not isinstance(part, _objects.Inside):
            parts[at] = await _copied(pool, part)
    await send(sender, _objects.frozen(parts), word)


async def send_object(sender, value, pool):
    await _send_parts(sender, _objects.parts(value), _objects.WORD, pool)


async def send_array(sender, value, pool):
    await _send_parts(sender, _objects.array_parts(value), _objects.ARRAY, pool)
