"""Processes are killed in the middle of their work: the others are told, and nothing is left."""

import os
import random

import pytest
from conftest import shared_names, until

import tranship

TORTURE = bool(os.environ.get("TRANSHIP_TORTURE"))
ROUNDS = 500 if TORTURE else 6

READER = """
receiver = domain.open('work', tranship.Receiver)
held = []
say('ready')
for number, buffer in enumerate(receiver):
    if number % 3 == 0:
        held.append(numpy.asarray(buffer))
    if len(held) > 20:
        held.clear()
    assert bytes(memoryview(buffer)[:8]) == number.to_bytes(8, 'big')
"""

WRITER = """
pool = domain.pool('work', 4 << 20)
with domain.open('work', tranship.Sender) as sender:
    say('ready')
    number = 0
    while True:
        array = pool.empty(8192, numpy.uint8)
        array[:8] = numpy.frombuffer(number.to_bytes(8, 'big'), numpy.uint8)
        sender.send(array)
        number += 1
"""


def alone(domain):
    return len(domain.admin().stat()["domains"]) == 1


@pytest.fixture
def seed():
    seed = int(os.environ.get("TRANSHIP_SEED", 0)) or random.randrange(1 << 32)
    print("TRANSHIP_SEED =", seed)
    return random.Random(seed)


def test_a_reader_is_killed(domain, peer, seed):
    before = shared_names(os.getpid())
    pool = domain.pool("work", 4 << 20, chunk_bytes=1 << 16)
    with domain.listen("work", tranship.Sender) as listener:
        for _ in range(ROUNDS):
            reader = peer(READER)
            with listener.accept() as sender:
                assert reader.hear() == "ready"
                last = seed.randrange(1, 400)
                with pytest.raises(BrokenPipeError):
                    number = 0
                    while True:
                        if number == 0:
                            assert shared_names(reader.process.pid) == [] and shared_names(os.getpid()) == before
                        buffer = pool.copy(number.to_bytes(8, "big") * 1024)
                        sender.send(buffer)
                        number += 1
                        if number == last:
                            reader.process.kill()
                assert sender.peer_gone
            reader.process.wait()
            del buffer
            # All of its memory is back.
            pool.alloc(4 << 20).release()
    until(lambda: alone(domain))
    assert domain.admin().stat()["channels"] == [] and domain.admin().stat()["holds"] == []


def test_a_writer_is_killed(domain, peer, seed):
    before = shared_names(os.getpid())
    with domain.listen("work", tranship.Receiver) as listener:
        for _ in range(ROUNDS):
            writer = peer(WRITER)
            with listener.accept() as receiver:
                last = seed.randrange(1, 400)
                held = []
                with pytest.raises(tranship.PeerDied):
                    for number, buffer in enumerate(receiver):
                        assert bytes(memoryview(buffer)[:8]) == number.to_bytes(8, "big")
                        held = [*held[-5:], (number, buffer)]
                        if number == 0:
                            assert shared_names(writer.process.pid) == [] and shared_names(os.getpid()) == before
                        if number == last:
                            writer.process.kill()
                # Held buffers stay readable.
                for number, kept in held:
                    assert bytes(memoryview(kept)[:8]) == number.to_bytes(8, "big")
            writer.process.wait()
            held.clear()
            buffer = kept = None
    until(lambda: alone(domain) and domain.admin().stat()["pools"] == [])
    assert domain.admin().stat()["manager"]["granted_bytes"] == 0


AWAITER = """
import asyncio
receiver = domain.open('work', tranship.Receiver)
async def main():
    say('ready')
    async for buffer in receiver:
        pass
asyncio.run(main())
"""


def test_a_reader_that_awaits_is_killed(domain, peer):
    pool = domain.pool("work", 1 << 20)
    with domain.listen("work", tranship.Sender) as listener:
        reader = peer(AWAITER)
        with listener.accept() as sender:
            reader.hear()
            sender.send(pool.copy(b"first"))
            reader.kill()
            with pytest.raises(BrokenPipeError):
                while True:
                    sender.send(pool.copy(b"more"))


def test_one_that_ends_without_a_word_has_not_closed(domain, peer):
    with domain.listen("work", tranship.Receiver) as listener:
        peer("sender = domain.open('work', tranship.Sender); sender.send(b'x'); os._exit(0)")
        with listener.accept() as receiver:
            assert bytes(receiver.recv()) == b"x"
            with pytest.raises(ConnectionResetError):
                receiver.recv()


def test_a_program_that_ends_by_itself_has_closed_only_what_it_closed(domain, peer):
    ends = [("", False), ("raise ValueError", False), ("sys.exit()", False), ("sender.close()", True)]
    with domain.listen("work", tranship.Receiver) as listener:
        for end, closed in ends:
            one = peer(f"sender = domain.open('work', tranship.Sender); sender.send(b'x')\n{end}")
            with listener.accept() as receiver:
                assert bytes(receiver.recv()) == b"x"
                if closed:
                    assert list(receiver) == []
                else:
                    with pytest.raises(tranship.PeerDied):
                        receiver.recv()
            one.end()
