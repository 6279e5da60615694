"""Contexts and processes: those of multiprocessing, with our queues, and with children that know the program's place."""

import concurrent.futures
import contextlib
import multiprocessing.context as _context
import secrets
import signal
from multiprocessing.reduction import ForkingPickler

from .. import _family, _items, _reduce
from .._errors import NoSuchName
from .._native import Buffer, in_pool


def _is_in_pool(value):
    """Whether an argument's memory is lost in a forked child."""
    if isinstance(value, Buffer):
        return True
    try:
        return in_pool(value) is not None
    except (TypeError, ValueError, BufferError):
        return False


class _Child:
    """A process that tells its child where the program's store is, and which start method is the default."""

    def start(self):
        self._place = _family.family().place
        self._default = default.get_start_method(allow_none=True)
        super().start()

    def _bootstrap(self, *arguments, **named):
        _family.remember(self._place)
        default._inherit(self._default)
        return super()._bootstrap(*arguments, **named)


class ForkProcess(_Child, _context.ForkProcess):
    """A forked process. Arguments that lie in a pool, which a forked child does not have, travel as references."""

    def start(self):
        self._sent = None
        if any(map(_is_in_pool, (*self._args, *self._kwargs.values()))):
            self._sent = bytes(ForkingPickler.dumps((self._args, self._kwargs)))
        super().start()

    def run(self):
        if self._sent is not None:
            self._args, self._kwargs = ForkingPickler.loads(self._sent)
        super().run()


class SpawnProcess(_Child, _context.SpawnProcess):
    """A spawned process."""


class ForkServerProcess(_Child, _context.ForkServerProcess):
    """A process of the fork server's."""


class Process(_Child, _context.Process):
    """A process that starts by the default method."""

    @staticmethod
    def _Popen(process):
        return default.get_context().Process._Popen(process)

    @staticmethod
    def _after_fork():
        return default.get_context().Process._after_fork()


class _Queues:
    """The methods of a context that are ours."""

    def Queue(self, maxsize=0):
        """A queue for any number of processes: each item goes to one of them."""
        from ._queues import Queue

        return Queue(maxsize)

    def JoinableQueue(self, maxsize=0):
        """A queue that can be waited for until all its items are finished."""
        from ._queues import JoinableQueue

        return JoinableQueue(maxsize)

    def get_context(self, method=None):
        """Returns the context of a start method."""
        if method is None:
            return self
        if method not in _contexts:
            raise ValueError(f"cannot find context for {method!r}")
        return _contexts[method]


class ForkContext(_Queues, _context.ForkContext):
    """Starts processes by fork."""

    Process = ForkProcess


class SpawnContext(_Queues, _context.SpawnContext):
    """Starts processes by spawn."""

    Process = SpawnProcess


class ForkServerContext(_Queues, _context.ForkServerContext):
    """Starts processes by a fork server."""

    Process = ForkServerProcess


_contexts = {"fork": ForkContext(), "spawn": SpawnContext(), "forkserver": ForkServerContext()}


class _Default(_Queues, _context.DefaultContext):
    """The context of this module: that of the start method which the program sets, or forkserver."""

    Process = Process

    def SimpleQueue(self):
        """A queue for any number of processes, of any number of items.

        Contexts of one start method keep multiprocessing's own: `Pool` and `ProcessPoolExecutor` use its pipe."""
        from ._queues import SimpleQueue

        return SimpleQueue()

    def get_context(self, method=None):
        if method is not None:
            return super().get_context(method)
        if self._actual_context is None:
            self._actual_context = self._default_context
        return self._actual_context

    def _inherit(self, method):
        if method is not None and self._actual_context is None:
            self._actual_context = _contexts[method]


default = _Default(_contexts["forkserver"])


class _Call:
    """A call on its way to a worker: its large arguments travel as one reference."""

    def __init__(self, function, arguments, named):
        self.call = function, arguments, named
        self.key = None

    def __call__(self):
        function, arguments, named = self.call
        return function(*arguments, **named)

    def __reduce__(self):
        stream, beside = _items.shown(self.call, _reduce.LEAST)
        if not beside:
            return _Call, self.call
        here = _family.family()
        self.key = secrets.token_bytes(16)
        here.store.park(self.key, _items.laid(stream, beside, here.pool))
        return _taken, (here.place, self.key)

    def ended(self, future):
        """Forgets the arguments of a call whose worker did not take them."""
        if self.key is not None and (future.cancelled() or future.exception() is not None):
            with contextlib.suppress(NoSuchName):
                _family.family().store.delete(self.key)


def _taken(place, key):
    return _Call(*_items.unpacked(_family.at(tuple(place)).store.take(key)))


class Executor(concurrent.futures.ProcessPoolExecutor):
    """A `ProcessPoolExecutor` whose arguments and results go by reference.

    A worker that dies ends the executor with `BrokenProcessPool`, as the standard one does; `died` then says which worker, and how.

    >>> import math, tranship
    >>> with tranship.Executor(1) as executor:
    ...     executor.submit(math.sqrt, 9).result()
    3.0
    """

    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), **named):
        if mp_context is None:
            mp_context = default.get_context("spawn" if named.get("max_tasks_per_child") else None)
        self._all = {}
        super().__init__(max_workers, mp_context, initializer, initargs, **named)

    def submit(self, fn, /, *args, **kwargs):
        """Calls a function in a worker. Returns a future of its result."""
        call = _Call(fn, args, kwargs)
        future = super().submit(call)
        future.add_done_callback(call.ended)
        return future

    def __reduce__(self):
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: its workers are this process's children. Make one in the other process")

    def _spawn_process(self):
        super()._spawn_process()
        self._all.update(self._processes)

    @property
    def died(self):
        """Exit codes by process id of the workers that died by themselves: a negative one is the signal that killed the worker."""
        codes = {pid: worker.exitcode for pid, worker in self._all.items()}
        return {pid: code for pid, code in codes.items() if code not in (None, 0, -signal.SIGTERM)}


Executor.__module__ = "tranship"
