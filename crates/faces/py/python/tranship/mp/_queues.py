"""Queues in the program's store. There is no feeder thread: an item is in the store, or was refused, when `put` returns."""

import queue
import secrets
import weakref

from .. import _family, _items
from .._errors import Full, NoSuchName


def _let_go(place, name, here):
    """Closes a queue whose last object in this process is gone."""
    if _family.joined(place) is here:
        try:
            here.store.close_queue(name)
        except Exception:  # the store is gone, and the queue with it
            pass


class Queue:
    """A queue for any number of processes, like `multiprocessing.Queue`. What it hands out is read-only where it is large.

    An object of it can be pickled, and sent anywhere in the program.

    >>> import tranship.mp as mp
    >>> items = mp.Queue(maxsize=2)
    >>> items.put(mp.zeros((1080, 1920, 3), "u1"))
    >>> items.get().shape
    (1080, 1920, 3)
    """

    def __init__(self, maxsize=0):
        self._open(_family.family().place, secrets.token_bytes(12), max(0, int(maxsize)))

    def _open(self, place, name, most):
        self._place, self._name, self._maxsize = place, name, most
        self._closed = self._was_used = False
        self._here = None
        self._family()

    def _family(self):
        """Returns this process's part of the program: a forked child's is a new one."""
        here = self._here
        if here is None or _family.joined(self._place) is not here:
            self._here = here = _family.at(self._place)
            here.store.open(self._name)
            weakref.finalize(self, _let_go, self._place, self._name, here).atexit = False
        return here

    def __reduce__(self):
        return _opened, (type(self), self._place, self._name, self._maxsize)

    def __repr__(self):
        return f"<{type(self).__module__}.{type(self).__qualname__} {self._name.hex()}>"

    def _check(self):
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj, block=True, timeout=None):
        """Appends an item, and waits for room, at most `timeout` seconds: `queue.Full`. Without `block` it does not wait.

        An array of a pool becomes read-only; other large data is copied once. `ValueError`: the queue is closed."""
        self._check()
        self._was_used = True
        here = self._family()
        message = _items.packed(obj, here.pool)
        try:
            here.store.push(self._name, message, self._maxsize, _wait(block, timeout))
        except Full:
            raise queue.Full from None

    def get(self, block=True, timeout=None):
        """Takes the first item, and waits for one, at most `timeout` seconds: `queue.Empty`. Without `block` it does not wait.

        Arrays keep their shape and dtype, and are read-only. `PeerDied`, `PeerGone`: the process that keeps the program's store has ended."""
        self._check()
        try:
            message = self._family().store.pop(self._name, _wait(block, timeout))
        except NoSuchName:
            raise queue.Empty from None
        return _items.unpacked(message)

    def put_nowait(self, obj):
        """Appends an item if there is room."""
        self.put(obj, False)

    def get_nowait(self):
        """Takes the first item if there is one."""
        return self.get(False)

    def qsize(self):
        """Returns the number of items."""
        return self._family().store.length(self._name)

    def empty(self):
        """Returns whether there is no item."""
        if self._closed and self._was_used:
            raise OSError(f"Queue {self!r} is closed")
        return self.qsize() == 0

    def full(self):
        """Returns whether there is no room."""
        return 0 < self._maxsize <= self.qsize()

    def close(self):
        """Ends this object: the queue stays for others."""
        self._closed = True

    def join_thread(self):
        """Does nothing: there is no thread."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self):
        """Does nothing: there is no thread."""


class SimpleQueue(Queue):
    """A queue without limit. `multiprocessing.SimpleQueue` has `put`, `get`, `empty` and `close` of these methods.

    >>> import tranship.mp as mp
    >>> items = mp.SimpleQueue()
    >>> items.put("an item")
    >>> items.get()
    'an item'
    """

    def __init__(self):
        super().__init__()

    def close(self):
        """Ends this object: the queue stays for others. Also one that was never used is closed then."""
        self._was_used = True
        super().close()


class JoinableQueue(Queue):
    """A queue whose items are counted until a consumer says that they are finished.

    >>> import tranship.mp as mp
    >>> jobs = mp.JoinableQueue()
    >>> jobs.put("a job")
    >>> jobs.get()
    'a job'
    >>> jobs.task_done()
    >>> jobs.join()
    """

    def task_done(self):
        """Says that an item is finished. `ValueError`: more items were finished than put."""
        self._family().store.finish(self._name)

    def join(self):
        """Waits until all items are finished.

        The items of a process that ended before it finished them count as finished. `PeerDied` then says, once, how many there were and
        which process ended last; the queue goes on."""
        self._family().store.join(self._name)


def _opened(kind, place, name, most):
    opened = kind.__new__(kind)
    opened._open(tuple(place), name, most)
    return opened


def _wait(block, timeout):
    """Returns seconds to wait, None for ever."""
    if not block:
        return 0
    return None if timeout is None else max(0.0, timeout)
