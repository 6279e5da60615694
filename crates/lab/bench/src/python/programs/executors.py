"""An array to a worker of an executor and back: `concurrent.futures.ProcessPoolExecutor`, joblib's backend loky, which maps large arguments from files
in /dev/shm, and `tranship.Executor` with arrays that are born in a pool, or are the process's own. The worker returns what it got; the program's other
side does nothing."""

import concurrent.futures
import os

from arrays import WORD, Own, read, words, write
from run import STOP


def echo(array):
    return array


def pinned(core):
    os.sched_setaffinity(0, {core})


class Side:
    def __init__(self, case, _shared):
        self.works = case.role == 0
        if not self.works:
            return
        self.own, self.words = Own(case), words(case)
        if case.variant == "joblib":
            self.begin_joblib()
        elif case.variant == "standard":
            self.begin(concurrent.futures.ProcessPoolExecutor, case.context, case.cores[1])
        else:
            import tranship
            import tranship.mp as mp

            if case.variant == "born":
                self.own, self.empty = None, mp.empty
            self.begin(tranship.Executor, mp.get_context("fork"), case.cores[1])

    def begin(self, kind, context, core):
        executor = kind(1, context, pinned, (core,))
        self.call = lambda array: executor.submit(echo, array).result()
        self.close_executor = executor.shutdown

    def begin_joblib(self):
        import joblib

        # With one worker it would call the function itself.
        parallel = joblib.Parallel(2).__enter__()
        self.call = lambda array: parallel([joblib.delayed(echo)(array)])[0]
        self.close_executor = lambda: parallel.__exit__(None, None, None)

    def send(self, stamp):
        if not self.works or stamp == STOP:
            return
        if self.own:
            array = self.own.with_stamp(stamp, self.touched)
        else:
            array = self.empty(self.words, WORD)
            write(array, stamp, self.touched)
        self.back = self.call(array)

    def recv(self):
        return read(self.back, self.touched) if self.works else STOP

    def close(self):
        if self.works:
            self.close_executor()
