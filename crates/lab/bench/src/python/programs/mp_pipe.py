"""`multiprocessing.Pipe`: arrays as objects; `multiprocessing.Pipe-bytes`: their bytes, into an array that is there."""

import numpy
from arrays import WORD, Own, read, words


def shared(case):
    return case.context.Pipe()


class Side:
    def __init__(self, case, shared):
        self.end = shared[case.role]
        self.own = Own(case)
        self.into = numpy.zeros(words(case), WORD) if case.variant == "bytes" else None

    def send(self, stamp):
        array = self.own.with_stamp(stamp, self.touched)
        if self.into is None:
            self.end.send(array)
        else:
            self.end.send_bytes(array)

    def recv(self):
        if self.into is None:
            return read(self.end.recv(), self.touched)
        self.end.recv_bytes_into(self.into)
        return read(self.into, self.touched)

    def close(self):
        self.end.close()
