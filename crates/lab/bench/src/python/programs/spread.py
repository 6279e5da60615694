"""One run of one system with a writer and several readers: each reads every array, and says so by a byte in a pipe. Says a JSON list of what it
measured: the time until all readers have read an array, and the processor time of readers that wait for one.

    python spread.py '{"variant": ..., "readers": 4, "touches": [...], ...}'
"""

import glob
import json
import os
import pickle
import struct
import sys
import time
from multiprocessing import shared_memory
from types import SimpleNamespace

from arrays import Own, read
from run import STOP, die_with_parent, measured

SAMPLES = 1 << 16
IDLE_SECONDS = 1.0
# More messages than any of the systems keeps.
WARM = 32


class Broadcast:
    """`tranship.Broadcast`: one copy into memory that all readers see."""

    def __init__(self, case, pipes):
        import tranship

        self.pipes = pipes
        if case.role is None:
            self.end = tranship.Broadcast(case.readers)
            for _, there in pipes:
                there.send(self.end.export_handle())
        else:
            self.end = tranship.Broadcast.create_from_handle(pipes[case.role][0].recv())
        self.end.wait_until_ready()
        self.send, self.recv, self.close = lambda obj: self.end.enqueue(obj), lambda: self.end.dequeue(), lambda: self.end.shutdown()


class Queues:
    """A queue for each reader: that of `multiprocessing`, or of `tranship.mp`."""

    def __init__(self, case, pipes):
        self.queues, self.role, self.born = case.queues, case.role, case.variant == "queues"
        if self.born and case.role is None:
            import tranship.mp as mp

            self.array = mp.array

    def send(self, obj):
        obj = self.array(obj) if self.born else obj
        for queue in self.queues:
            queue.put(obj)

    def recv(self):
        return self.queues[self.role].get()

    def close(self):
        pass


class Ring:
    """vLLM's `shm_broadcast.MessageQueue`, rebuilt: ten chunks in a shared block, each with a flag byte of the writer and one of each reader, looked
    at again and again with `sched_yield` between. Larger messages than a chunk, of 10 MiB by default, go by a socket of ZeroMQ. `ring-fit`: chunks
    as large as the message."""

    CHUNKS, CHUNK = 10, 10 << 20

    def __init__(self, case, pipes):
        self.readers, self.role, self.at = case.readers, case.role, 0
        self.chunk = self.chunk_bytes(case)
        self.block = case.block
        self.socket = self.beyond(f"ipc://{case.folder}/ring") if case.variant == "ring" else None
        for mine, there in pipes if self.socket and self.role is None else ():
            assert there.recv() == b"here"
        if self.socket and self.role is not None:
            pipes[self.role][0].send(b"here")

    @classmethod
    def chunk_bytes(cls, case):
        return cls.CHUNK if case.variant == "ring" else max(cls.CHUNK, case.payload + 4096)

    @classmethod
    def made(cls, case):
        """Before the readers are forked."""
        name = f"tranship_bench_{case.run}_ring"
        size = cls.CHUNKS * (cls.chunk_bytes(case) + 1 + case.readers)
        return shared_memory.SharedMemory(name, create=True, size=size)

    def beyond(self, address):
        import zmq

        self.context = zmq.Context()
        if self.role is not None:
            socket = self.context.socket(zmq.SUB)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.connect(address)
            socket.recv()
            return socket
        socket = self.context.socket(zmq.XPUB)
        socket.setsockopt(zmq.XPUB_VERBOSE, True)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind(address)
        for _ in range(self.readers):
            socket.recv()
        socket.send(b"ready")
        return socket

    def flags(self):
        at = self.CHUNKS * self.chunk + self.at * (1 + self.readers)
        return self.block.buf[at : at + 1 + self.readers]

    def bytes(self):
        return self.block.buf[self.at * self.chunk : (self.at + 1) * self.chunk]

    def send(self, obj):
        beside = []
        stream = pickle.dumps(obj, protocol=5, buffer_callback=beside.append)
        parts = [memoryview(stream), *(part.raw() for part in beside)]
        flags, bytes = self.flags(), self.bytes()
        while flags[0] and sum(flags[1:]) < self.readers:
            os.sched_yield()
        flags[0] = 0
        fits = 3 + sum(4 + part.nbytes for part in parts) <= self.chunk
        bytes[0] = not fits
        if fits:
            struct.pack_into(">H", bytes, 1, len(parts))
            at = 3
            for part in parts:
                struct.pack_into(">I", bytes, at, part.nbytes)
                bytes[at + 4 : at + 4 + part.nbytes] = part
                at += 4 + part.nbytes
        flags[1:] = b"\0" * self.readers
        flags[0] = 1
        if not fits:
            self.socket.send_multipart(parts, copy=False)
        self.at = (self.at + 1) % self.CHUNKS

    def recv(self):
        flags, bytes = self.flags(), self.bytes()
        while not flags[0] or flags[1 + self.role]:
            os.sched_yield()
        if bytes[0]:
            parts = [frame.buffer for frame in self.socket.recv_multipart(copy=False)]
        else:
            (count,), at, parts = struct.unpack_from(">H", bytes, 1), 3, []
            for _ in range(count):
                (length,) = struct.unpack_from(">I", bytes, at)
                parts.append(bytes[at + 4 : at + 4 + length])
                at += 4 + length
        obj = pickle.loads(parts[0], buffers=parts[1:])
        flags[1 + self.role] = 1
        self.at = (self.at + 1) % self.CHUNKS
        return obj

    def close(self):
        pass


SIDES = {"broadcast": Broadcast, "queues": Queues, "standard": Queues, "ring": Ring, "ring-fit": Ring}


def reads(case, role, pipes, done):
    die_with_parent()
    os.sched_setaffinity(0, {case.cores[1]})
    case.role = role
    side = SIDES[case.variant](case, pipes)
    for touch in case.touches:
        while read(side.recv(), touch == "touched") != STOP:
            os.write(done, b"x")
        os.write(done, b"x")
    # The writer looks how much a reader does that waits.
    read(side.recv(), False)
    side.close()
    os.write(done, b"x")
    os._exit(0)


def all_done(done, readers):
    left = readers
    while left:
        if not (said := os.read(done, left)):
            raise SystemExit("the readers are gone")
        left -= len(said)


def writes(case, side, done, touched):
    own, clock, samples = Own(case), time.perf_counter_ns, []
    begun = clock()
    budget = case.sample_ms * 1_000_000
    for stamp in range(1, SAMPLES):
        array = own.with_stamp(stamp, touched)
        before = clock()
        side.send(array)
        all_done(done, case.readers)
        now = clock()
        # The first quarter is warm-up, until all memory was used once if time allows; at least two count.
        if now - begun > budget // 4 and stamp > (2 if now - begun > budget else WARM):
            samples.append(now - before)
        if now - begun > budget and len(samples) > 1:
            break
    side.send(own.with_stamp(STOP, touched))
    all_done(done, case.readers)
    return samples


def processor_ns(pids):
    return sum(int(open(path).read().split()[0]) for pid in pids for path in glob.glob(f"/proc/{pid}/task/*/schedstat"))


def main():
    case = SimpleNamespace(**json.loads(sys.argv[1]))
    os.makedirs(case.folder, exist_ok=True)
    import multiprocessing

    context = multiprocessing.get_context("fork")
    if case.variant == "queues":
        import tranship.mp as mp

        context = mp.get_context("fork")
    case.queues = [context.Queue() for _ in range(case.readers)] if SIDES[case.variant] is Queues else []
    case.block = Ring.made(case) if SIDES[case.variant] is Ring else None
    pipes = [multiprocessing.Pipe() for _ in range(case.readers)]
    done, says = os.pipe()
    readers = [context.Process(target=reads, args=(case, role, pipes, says), daemon=True) for role in range(case.readers)]
    for reader in readers:
        reader.start()
    os.close(says)
    os.sched_setaffinity(0, {case.cores[0]})
    case.role = None
    side = SIDES[case.variant](case, pipes)
    said = [measured(touch, writes(case, side, done, touch == "touched")) for touch in case.touches]
    pids = [reader.pid for reader in readers]
    used, begun = processor_ns(pids), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    share = (processor_ns(pids) - used) / case.readers / (time.perf_counter() - begun)
    # Of a second of one reader that waits, nanoseconds on a processor: 10 ms are 1 %.
    said.append({"op": "idle", "median_ns": share, "p99_ns": share, "per_second": 0, "facts": {"percent_of_a_core": share / 1e7}})
    side.send(Own(case).with_stamp(STOP, False))
    all_done(done, case.readers)
    for reader in readers:
        reader.join()
    side.close()
    if case.block:
        case.block.unlink()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
