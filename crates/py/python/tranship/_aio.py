"""Awaiting in asyncio: what the object's descriptor tells is looked at by the running loop."""

import asyncio

from . import _objects
from ._errors import PeerGone


def _wake(future):
    if not future.done():
        future.set_result(None)


async def _readable(loop, fd):
    future = loop.create_future()
    loop.add_reader(fd, _wake, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


# Descriptors that a task waits on: a loop has one callback for each.
_awaited: set[int] = set()


async def _until(fd, look, what):
    loop = asyncio.get_running_loop()
    if fd in _awaited:
        raise RuntimeError(f"another task awaits this {what} already")
    _awaited.add(fd)
    try:
        while (found := look()) is None:
            await _readable(loop, fd)
        return found
    finally:
        _awaited.discard(fd)


async def recv(receiver):
    return await _until(receiver.fileno(), receiver.try_recv, "receiver")


async def recv_object(receiver):
    return _objects.unpacked(await recv(receiver))


async def following(receiver):
    try:
        return await recv(receiver)
    except PeerGone:
        raise StopAsyncIteration from None


async def send(sender, payload, meta=0):
    if sender._begin(payload, meta):
        return
    done = False
    try:
        await _until(sender._fileno(), lambda: sender._look() or None, "sender")
        done = True
    finally:
        if not done:
            sender._cancel()


async def send_object(sender, value, pool):
    pieces = _objects.pieces(value, pool)
    await send(sender, pieces, _objects.META)
