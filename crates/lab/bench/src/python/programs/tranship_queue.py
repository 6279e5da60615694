"""`tranship-queue`: `tranship.mp.Queue`, one each way, arrays born in a pool. `tranship-queue-foreign`: arrays of the process's own memory."""

from arrays import WORD, Own, read, words, write

import tranship.mp as mp


def shared(case):
    return mp.Queue(), mp.Queue()


class Side:
    def __init__(self, case, shared):
        self.out, self.back = shared[case.role], shared[1 - case.role]
        self.words = words(case)
        self.own = Own(case) if case.variant == "foreign" else None

    def send(self, stamp):
        if self.own:
            array = self.own.with_stamp(stamp, self.touched)
        else:
            array = mp.empty(self.words, WORD)
            write(array, stamp, self.touched)
        self.out.put(array)

    def recv(self):
        return read(self.back.get(), self.touched)

    def close(self):
        self.out.close()
