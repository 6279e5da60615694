"""`tranship-python`: arrays born in a pool. `tranship-python-foreign`: copied into one."""

import numpy
from arrays import WORD, Own, read, words, write
from tranship_domain import Ends


class Side(Ends):
    def __init__(self, case, shared):
        super().__init__(case, shared)
        self.words = words(case)
        self.own = Own(case) if case.variant == "foreign" else None

    def send(self, stamp):
        if self.own:
            array = self.pool.copy(self.own.with_stamp(stamp, self.touched))
        else:
            array = self.pool.empty(self.words, WORD)
            write(array, stamp, self.touched)
        self.sender.send(array)

    def recv(self):
        return read(numpy.frombuffer(self.receiver.recv(), WORD), self.touched)
