"""Values by other ways of the product than queues: under keys of a `Store`, and by a `Broadcast` each way. `...-foreign`: arrays of the process's own
memory."""

from arrays import WORD, Own, read, words, write

import tranship
import tranship.mp as mp

KEEP = 64 << 20


def shared(case):
    if case.variant.startswith("store"):
        quota = max(KEEP, 8 * case.payload)
        return tranship.Store.create(f"bench-{case.run:x}", quota_bytes=quota)
    handles = mp.Pipe(), mp.Pipe()
    return [(pair[0], other[1]) for pair, other in zip(handles, reversed(handles))]


class Side:
    def __init__(self, case, shared):
        self.words, self.role, self.sent, self.received = words(case), case.role, 0, 0
        self.own = Own(case) if case.variant.endswith("foreign") else None
        self.store = shared if case.variant.startswith("store") else None
        if self.store is None:
            mine, others = shared[case.role]
            self.out = tranship.Broadcast(1)
            mine.send(self.out.export_handle())
            self.back = tranship.Broadcast.create_from_handle(others.recv())
            # A reader joins while it waits, so the sides wait for one way after the other.
            for side in (self.out, self.back) if case.role == 0 else (self.back, self.out):
                side.wait_until_ready()

    def send(self, stamp):
        if self.own:
            array = self.own.with_stamp(stamp, self.touched)
        else:
            array = mp.empty(self.words, WORD)
            write(array, stamp, self.touched)
        if self.store is None:
            return self.out.enqueue(array)
        self.sent += 1
        self.store.put(f"{self.role} {self.sent}", array)

    def recv(self):
        if self.store is None:
            return read(self.back.dequeue(), self.touched)
        self.received += 1
        key = f"{1 - self.role} {self.received}"
        stamp = read(self.store.wait(key), self.touched)
        self.store.delete(key)
        return stamp

    def close(self):
        if self.store is None:
            self.out.shutdown()
            self.back.shutdown()
        elif self.role:
            self.store.close()
