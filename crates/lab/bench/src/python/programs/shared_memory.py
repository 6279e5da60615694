"""`shared_memory`: an array in `multiprocessing.shared_memory` for each way, used by hand: who waits is told over a pipe, or looks at a word.
`shared_memory-foreign`: the array is copied into it. No allocation, nobody counts who still reads, and everybody may write."""

from multiprocessing.shared_memory import SharedMemory

import numpy
from arrays import WORD, Own, read, words, write

# Bytes before the array: the word that is looked at, alone in its line.
HEAD = 64


def shared(case):
    names = [f"tranship-bench-{case.run:x}-{way}" for way in ("out", "back")]
    blocks = [SharedMemory(name, create=True, size=HEAD + case.payload) for name in names]
    return blocks, case.context.Pipe()


class Side:
    def __init__(self, case, shared):
        self.blocks, pipes = shared
        self.pipe = pipes[case.role]
        self.spins = case.wait == "spin"
        flags = [numpy.ndarray(1, WORD, block.buf) for block in self.blocks]
        arrays = [numpy.ndarray(words(case), WORD, block.buf, HEAD) for block in self.blocks]
        self.out_flag, self.back_flag = flags[case.role], flags[1 - case.role]
        self.out, self.back = arrays[case.role], arrays[1 - case.role]
        self.own = Own(case) if case.variant == "foreign" else None
        self.owner = case.role == 0
        self.sent = self.received = 0

    def send(self, stamp):
        if self.own:
            self.out[:] = self.own.with_stamp(stamp, self.touched)
        else:
            write(self.out, stamp, self.touched)
        if self.spins:
            self.sent += 1
            self.out_flag[0] = self.sent
        else:
            self.pipe.send_bytes(b"x")

    def recv(self):
        if self.spins:
            self.received += 1
            while self.back_flag[0] != self.received:
                pass
        else:
            self.pipe.recv_bytes()
        return read(self.back, self.touched)

    def close(self):
        del self.out, self.back, self.out_flag, self.back_flag
        for block in self.blocks:
            block.close()
            if self.owner:
                block.unlink()
