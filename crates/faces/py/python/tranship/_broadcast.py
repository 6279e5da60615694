"""`tranship.Broadcast`: one writer's objects to a fixed number of readers, each to all of them."""

import pickle
import secrets
import struct
import time

from . import _family, _items
from ._errors import PeerDied, PeerGone, TimedOut, of_kind

# The word of a message that is the last one.
_END = int.from_bytes(b"bc-end", "big")
# Most messages of which a reader keeps arrays.
_KEPT = 1024
# Parts of a message begin at multiples of this.
_ALIGN = 64
# Seconds between two looks for room, of which no descriptor tells: the first pause, and the longest.
_SOON, _LATE = 0.00005, 0.005
# Seconds between two looks whether the writer is there.
_LOOK = 1.0


def _aligned(length):
    return -(-length // _ALIGN) * _ALIGN


class Broadcast:
    """One writer's objects to `n_reader` readers: each reader gets each object, in order. The surface is that of vLLM's
    `shm_broadcast.MessageQueue`.

    The writer makes one, and hands `export_handle()` to the readers, which call `Broadcast.create_from_handle(handle)`. Large parts of an
    object are copied once into memory that all readers see, read-only. A reader that is `max_chunks` messages behind holds the writer
    back: nothing is lost. A side that waits sleeps.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import tranship
    >>> writer = tranship.Broadcast(1)
    >>> def reads(handle):  # in another process, as a rule
    ...     reader = tranship.Broadcast.create_from_handle(handle)
    ...     return reader.dequeue(timeout=60)
    >>> reader = ThreadPoolExecutor().submit(reads, writer.export_handle())
    >>> writer.wait_until_ready(timeout=60)
    >>> writer.enqueue({"step": 1})
    >>> reader.result()
    {'step': 1}
    >>> writer.shutdown()
    """

    def __init__(self, n_reader, n_local_reader=None, *, max_chunks=16, max_bytes=4 << 30):
        """Makes the writer's side. `max_chunks` is the number of messages that a reader may be behind, 1 to 65,536; `max_bytes` the memory that
        they may have in sum. All readers are processes of this machine."""
        if n_local_reader not in (None, n_reader):
            raise ValueError(f"{n_reader - n_local_reader} of {n_reader} readers on other machines: all have to be on this one")
        here = _family.family()
        self._name = f"broadcast-{secrets.token_hex(8)}"
        self._n_reader = n_reader
        self._place = here.place
        depth = max(4, 1 << (max_chunks - 1).bit_length())
        self._publisher = here.domain.publish(self._name, depth=depth, keep=_KEPT, when_behind="drop-new", max_bytes=max_bytes)
        self._subscriber = None

    def export_handle(self):
        """Returns what a reader in another process needs. It can be pickled."""
        return self._place, self._name, self._n_reader

    @classmethod
    def create_from_handle(cls, handle, rank=None):
        """Makes a reader's side. `rank` is not needed: readers are told apart by their processes."""
        made = cls.__new__(cls)
        made._place, made._name, made._n_reader = handle
        made._publisher, made._early = None, []
        made._subscriber = _family.at(tuple(made._place)).domain.subscribe(made._name, reliable=True)
        made._was_joined = False
        return made

    def __reduce__(self):
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: pickle export_handle(), and make a reader of it")

    def __repr__(self):
        side = "writer" if self._publisher else "reader"
        return f"<tranship.Broadcast {self._name}, the {side}'s side>"

    def wait_until_ready(self, timeout=None):
        """Waits until all readers have joined; at a reader, until it has. `TimedOut` after `timeout` seconds."""
        if self._publisher:
            return self._publisher.wait_for(self._n_reader, timeout)
        deadline = _deadline(timeout)
        while not self._joined():
            try:
                self._early.append(self._subscriber.recv(_left(deadline, 0.05)))
            except TimedOut:
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def _joined(self):
        self._was_joined = self._was_joined or bool(self._early) or self._subscriber.status()["joined"]
        return self._was_joined

    def enqueue(self, obj, timeout=None):
        """Sends an object to all readers. Waits for room at most `timeout` seconds: then `Full` names the readers that are behind."""
        if self._publisher is None:
            raise ValueError("a reader's side: the writer enqueues")
        deadline = _deadline(timeout)
        self._send(self._laid(obj, timeout), 0, deadline)

    def _laid(self, obj, timeout):
        stream, beside = _items.shown(obj)
        parts = [memoryview(stream), *(data.raw() for data in beside)]
        head = struct.pack(f"<I{len(parts)}Q", len(parts), *(part.nbytes for part in parts))
        buffer = self._publisher.alloc(_aligned(len(head)) + sum(_aligned(part.nbytes) for part in parts), timeout=timeout)
        with memoryview(buffer) as view:
            at = 0
            for part in (memoryview(head), *parts):
                view[at : at + part.nbytes] = part
                at += _aligned(part.nbytes)
        return buffer

    def _send(self, message, word, deadline):
        pause = _SOON
        while not self._publisher.send(message, word):
            if deadline is not None and time.monotonic() >= deadline:
                raise of_kind("Full", f"{self!r}: {self._behind()}")
            time.sleep(pause)
            pause = min(2 * pause, _LATE)

    def _behind(self):
        seen = [one for one in self._publisher.status()["subscribers"] if one["behind"]]
        said = ", ".join(f"process {one['pid']} has {one['behind']} messages to take" for one in seen)
        return said or "all readers have taken everything, and keep the memory of what they have"

    def dequeue(self, timeout=None):
        """Returns the next object. Waits at most `timeout` seconds: `TimedOut`. `PeerGone`: the writer has shut down; `PeerDied`: it died."""
        if self._subscriber is None:
            raise ValueError("the writer's side: readers dequeue")
        message = self._early.pop(0) if self._early else self._next(_deadline(timeout))
        if message.word == _END:
            raise of_kind("PeerGone", f"{self!r}: the writer has shut down")
        count = int.from_bytes(message[0:4].tobytes(), "little")
        lengths = struct.unpack(f"<{count}Q", message[4 : 4 + 8 * count].tobytes())
        at, parts = _aligned(4 + 8 * count), []
        for length in lengths:
            parts.append(message[at : at + length])
            at += _aligned(length)
        return pickle.loads(parts[0], buffers=parts[1:])

    def _next(self, deadline):
        while True:
            try:
                return self._subscriber.recv(_left(deadline, _LOOK))
            except TimedOut:
                joined = self._subscriber.status()["joined"]
                if self._was_joined and not joined:
                    raise of_kind("PeerDied", f"{self!r}: the writer is gone without a shutdown") from None
                self._was_joined = joined
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def shutdown(self, timeout=1.0):
        """Ends this side. The writer's end is told to the readers, which take what they have still to take before."""
        try:
            if self._publisher:
                self._send(b"", _END, _deadline(timeout))
        except (PeerGone, PeerDied, BlockingIOError, ValueError):
            pass
        (self._publisher or self._subscriber).close()


def _deadline(timeout):
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline, longest):
    return longest if deadline is None else min(longest, max(0.0, deadline - time.monotonic()))


Broadcast.__module__ = __package__
