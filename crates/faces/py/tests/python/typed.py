"""A user's program, for the type checkers: all that it says must be found out."""

import asyncio
import socket
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import tranship


def use(domain: tranship.Domain) -> int:
    pool = domain.pool("images", 1 << 20, trust="producer")
    image = pool.empty((3, 4), np.float32)
    assert_type(image, NDArray[np.float32])
    with domain.open("x", tranship.Sender, timeout=1.5) as sender:
        sender.send(image)
        sender.send([pool.alloc(3), image], 7)
        sender.send_object({"a": 1}, pool)
        sender.send(b"abc", timeout=0)
    with domain.open("y", tranship.Receiver) as receiver:
        for buffer in receiver:
            assert_type(buffer, tranship.Buffer)
            if buffer.is_release:
                receiver.send_back(buffer, word=3, released=True)
            print(memoryview(buffer).nbytes, np.asarray(buffer), np.from_dlpack(buffer), bytes(buffer))
    with domain.listen("z", tranship.Receiver) as listener, listener.accept() as accepted:
        assert_type(accepted, tranship.Receiver)
        assert_type(accepted.recv_array(), NDArray[Any])
        assert_type(tranship.wait([listener], timeout=1), list[tranship.Listener[tranship.Receiver]])
    with domain.listen("z", tranship.Sender) as here, here.accept() as given:
        assert_type(given, tranship.Sender)
        given.send_array(image, pool)
        print(tranship.wait([given, socket.socket(), 3], 0), given.fileno(), here.fileno(), tranship.__version__)
    part = pool.alloc(tranship.INLINE_BYTES)
    assert_type(part[-3:], tranship.Buffer)
    assert_type(part[0], int)
    try:
        pool.alloc(1, timeout=0)
    except tranship.OutOfMemory as error:
        assert_type(error.code, int)
        assert isinstance(error, MemoryError)
    return domain.admin().stat()["pools"][0]["granted_bytes"]


async def wait(receiver: tranship.Receiver, sender: tranship.Sender, pool: tranship.Pool) -> None:
    await sender.send_async(pool.copy(b"x"))
    async for buffer in receiver:
        assert_type(buffer, tranship.Buffer)
    assert_type(await receiver.recv_async(), tranship.Buffer)
    assert_type(await receiver.recv_object_async(), Any)
    await sender.send_async(pool.alloc(1), word=2, move=True)
    await sender.wait_taken_async()
    asyncio.get_running_loop().add_reader(receiver.fileno(), print)


async def meet(domain: tranship.Domain) -> None:
    assert_type(await domain.open_async("x", tranship.Sender), tranship.Sender)
    assert_type(await domain.open_async("y", tranship.Receiver, lines=16), tranship.Receiver)
    with domain.listen("z", tranship.Receiver) as listener:
        assert_type(await listener.accept_async(), tranship.Receiver)
        async for accepted in listener:
            assert_type(accepted, tranship.Receiver)


def watch(domain: tranship.Domain) -> None:
    with domain.publish("t", depth=4, when_behind=0.5) as publisher, domain.subscribe("t", latest=True) as subscriber:
        assert_type(publisher.send(publisher.alloc(3), 7), bool)
        assert_type(publisher.status()["subscribers"][0]["behind"], int)
        for message in subscriber:
            assert_type(message, tranship.Buffer)
        assert_type(subscriber.missed, int)


def ask(domain: tranship.Domain) -> None:
    with domain.serve("s") as service, domain.client("s", timeout=1) as client:
        with client.begin(b"x", timeout=1) as call:
            for request in service:
                assert_type(request, tranship.Request)
                request.reply(request.alloc(3), move=True)
                break
            assert_type(call.wait(1), tranship.Buffer)
        try:
            assert_type(client.call(client.alloc(3)), tranship.Buffer)
        except tranship.ServiceFailed as failed:
            assert_type(failed.answer, tranship.Buffer)


def name(listener: tranship.Listener[tranship.Sender]) -> str:
    return listener.name
