"""CPython's own cases for queues, shared memory, pools and executors, run against `tranship.mp`. None is copied: the package `test` has them.

Run as a program; the arguments are those of unittest.
"""

import sys
import unittest

from test import _test_multiprocessing as cases

import tranship.mp as mp

# Cases that do not apply, and why.
NOT_OURS = {
    "test_queue_feeder_donot_stop_onexc": "it is about the feeder thread, which is not here: put() itself raises",
    "test_queue_feeder_on_queue_feeder_error": "it is about the feeder thread, which is not here: put() itself raises",
    "test_no_import_lock_contention": "it forks in an import by the default method, which is forkserver here",
    "test_closed": "it looks at the two pipe ends inside",
    "test_shared_memory_basics": "it looks at the descriptor, the mapping and /dev/shm behind a block, which has none of these",
    "test_shared_memory_name_with_embedded_null": "names are bytes of a key, where a null is one as any other",
    "test_shared_memory_recreate": "it replaces the function inside that makes names",
    "test_shared_memory_pickle_unpickle_dead_object": "it looks at /dev/shm",
    "test_shared_memory_SharedMemoryServer_ignores_sigint": "it is about SharedMemoryManager, which is multiprocessing's own",
    "test_shared_memory_SharedMemoryManager_reuses_resource_tracker": "it is about the resource tracker, which is not here",
    "test_shared_memory_SharedMemoryManager_basics": "it is about SharedMemoryManager, which is multiprocessing's own",
    "test_shared_memory_cleaned_after_process_termination": "it is about the resource tracker, which is not here",
    "test_shared_memory_untracking": "it is about the resource tracker, which is not here",
    "test_shared_memory_tracking": "it is about the resource tracker, which is not here",
}

cases.multiprocessing = mp
cases.shared_memory = mp.shared_memory


class Ours(getattr(cases, "BaseMixin", object)):
    """What `multiprocessing` is for the cases."""

    TYPE = "processes"
    connection = mp.connection
    current_process = staticmethod(mp.current_process)
    parent_process = staticmethod(mp.parent_process)
    active_children = staticmethod(mp.active_children)
    Process = mp.Process
    Pool = staticmethod(mp.Pool)
    Pipe = staticmethod(mp.Pipe)
    Queue = staticmethod(mp.Queue)
    JoinableQueue = staticmethod(mp.JoinableQueue)
    SimpleQueue = staticmethod(mp.SimpleQueue)
    Lock = staticmethod(mp.Lock)
    Event = staticmethod(mp.Event)
    Condition = staticmethod(mp.Condition)
    Semaphore = staticmethod(mp.Semaphore)
    Value = staticmethod(mp.Value)
    Array = staticmethod(mp.Array)


def of(kind):
    """The cases of a class, without those that do not apply."""

    class Cases(kind, Ours, unittest.TestCase):
        pass

    return named(Cases, kind)


def named(Cases, kind):
    """Skips what does not apply, and gives the cases their class's name."""
    for name in dir(Cases):
        if name in NOT_OURS:
            setattr(Cases, name, unittest.skip(NOT_OURS[name])(getattr(Cases, name)))
    Cases.__name__ = Cases.__qualname__ = kind.__name__.lstrip("_")
    return Cases


TestQueue = of(cases._TestQueue)
TestSimpleQueue = of(cases.TestSimpleQueue)
TestPool = of(cases._TestPool)
TestPoolWorkerErrors = of(cases._TestPoolWorkerErrors)
TestPoolWorkerLifetime = of(cases._TestPoolWorkerLifetime)
TestSharedMemory = of(cases._TestSharedMemory)


try:
    from test.test_concurrent_futures import test_process_pool, util
except ImportError:
    pass  # Python before 3.12 has them in one module, whose tests depend on each other's names
else:

    class Executors(util.ExecutorMixin):
        """What the cases of executors are given."""

        executor_type = mp.Executor
        ctx = "forkserver"

        def get_context(self):
            return mp.get_context(self.ctx)

    class TestExecutor(test_process_pool.ProcessPoolExecutorTest, Executors, util.BaseTestCase):
        """The cases of ProcessPoolExecutor."""

    TestExecutor = named(TestExecutor, TestExecutor)

if __name__ == "__main__":
    sys.modules["standard"] = sys.modules["__main__"]
    unittest.main()
