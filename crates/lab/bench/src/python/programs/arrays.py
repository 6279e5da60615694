"""Writing and reading arrays of words, the same way for every system."""

import numpy

WORD = numpy.dtype(numpy.uint64)


def words(case):
    return case.payload // 8


def write(array, stamp, touched):
    """8 bytes, or all."""
    if touched:
        array.fill(stamp)
    else:
        array[0] = stamp


def read(array, touched):
    """The stamp, of 8 bytes or of all; every word is looked at for that."""
    stamp = array.item(0)
    if touched and int(array.sum()) != stamp * array.size % 2**64:
        raise SystemExit(f"bytes of message {stamp} changed")
    return stamp


class Own:
    """A foreign array, as it comes from anywhere: in this process's memory."""

    def __init__(self, case):
        self.array = numpy.zeros(words(case), WORD)

    def with_stamp(self, stamp, touched):
        write(self.array, stamp, touched)
        return self.array
