"""Any object as one message: its pickle, and beside it, uncopied, what lies in pools already.

Unpickling runs what the sender says: take objects only from whom you would let run code here.
"""

import pickle
import time
from typing import Any, NamedTuple

from ._errors import make
from ._native import Buffer, in_pool, make_readonly

# The word that travels with an object: "tr-pickl", as a number.
META = int.from_bytes(b"tr-pickl", "big")
# Shorter ones are not worth a piece of their own.
_LEAST = 1024
_BAD_ARGUMENT = 14
_EINVAL = 22


class Inside(NamedTuple):
    """What lies in a pool: whose bytes they are, and where."""

    owner: Any
    buffer: Buffer
    start: int
    length: int

    def cut(self):
        self.buffer.freeze()
        return self.buffer.slice(self.start, self.start + self.length)


def rebuilt(data):
    """What a pickled Buffer becomes: a view of its bytes."""
    return memoryview(data)


def parts(value):
    """The message's: the pickle and what has to be copied to a pool, as bytes and views; what is in one, as `Inside`."""
    beside = []

    def keep(buffer):
        with buffer.raw() as raw:
            if raw.nbytes < _LEAST:
                return True
        beside.append(buffer)
        return False

    stream = pickle.dumps(value, protocol=5, buffer_callback=keep)
    return [stream, *map(_part, beside)]


def _part(buffer):
    raw = buffer.raw()
    found = in_pool(raw)
    if found is None:
        return raw
    owner = memoryview(buffer).obj
    # Views of ours would count as somebody else's.
    raw.release()
    buffer.release()
    return Inside(owner, *found)


def frozen(message):
    """Makes read-only what lies in pools, and cuts it out."""
    for part in message:
        if isinstance(part, Inside):
            part.buffer._ask()
    # Arrays first: what they can write of a buffer that goes along, too, they cannot write then.
    for part in message:
        if isinstance(part, Inside) and make_readonly(part.owner):
            part.buffer._freeze_array()
    return [part.cut() if isinstance(part, Inside) else part for part in message]


def send(sender, value, pool, timeout):
    deadline = None if timeout is None else time.monotonic() + timeout

    def left():
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    message = [part if isinstance(part, Inside) else pool.copy(part, timeout=left()) for part in parts(value)]
    sender.send(frozen(message), META, timeout=left())


def unpacked(buffer):
    if buffer.meta != META:
        text = f"a message of {len(buffer)} bytes that send_object() did not send: receive it with recv()"
        raise make(_BAD_ARGUMENT, _EINVAL, text)
    stream, *beside = buffer.pieces
    return pickle.loads(stream.tobytes(), buffers=beside)
