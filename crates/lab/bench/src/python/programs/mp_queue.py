"""`multiprocessing.Queue`: one each way."""

from arrays import Own, read


def shared(case):
    return case.context.Queue(), case.context.Queue()


class Side:
    def __init__(self, case, shared):
        self.out, self.back = shared[case.role], shared[1 - case.role]
        self.own = Own(case)

    def send(self, stamp):
        self.out.put(self.own.with_stamp(stamp, self.touched))

    def recv(self):
        return read(self.back.get(), self.touched)

    def close(self):
        self.out.close()
        self.out.join_thread()
