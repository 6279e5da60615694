"""Any object as one message: its pickle, and beside it, uncopied, the parts that lie in pools already. Arrays also without pickle.

Unpickling runs what the sender says: take objects only from whom you would let run code here. An array alone runs nothing.
"""

import io
import json
import pickle
import sys
import time
from typing import Any, NamedTuple

from ._errors import make
from ._native import Buffer, copied, in_pool, make_readonly

# The words that travel with an object and with an array: "tr-pickl" and "tr-array", as numbers.
WORD = int.from_bytes(b"tr-pickl", "big")
ARRAY = int.from_bytes(b"tr-array", "big")
# Shorter ones are not worth a piece of their own.
_LEAST = 1024
_BAD_ARGUMENT = 14
_EINVAL = 22


class Inside(NamedTuple):
    """Bytes in a pool: their owner, and their place in it."""

    owner: Any
    buffer: Buffer
    start: int
    length: int

    def cut(self):
        self.buffer.freeze()
        return self.buffer.slice(self.start, self.start + self.length)


def rebuilt(data):
    """Restores a pickled Buffer: the buffer itself if it travelled beside the pickle, else one with a copy."""
    return data if type(data) is Buffer else copied(data)


class _Pickler(pickle.Pickler):
    """All bytes that can travel beside the pickle do, those of arrays of any type and with any strides, too."""

    def reducer_override(self, value):
        # Nobody has an array before numpy is there.
        if "numpy" not in sys.modules:
            return NotImplemented
        from ._numpy import reduced

        return reduced(value)


def parts(value):
    """Returns the parts of the message: the pickle and the parts to copy to a pool, as bytes and views; those in a pool as `Inside`."""
    beside = []
    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=beside.append).dump(value)
    # In the first piece, so that they are read-only there as the large ones are.
    small = [bytes(buffer.raw()) if buffer.raw().nbytes < _LEAST else None for buffer in beside]
    first = pickle.dumps((stream.getbuffer().tobytes(), small), protocol=5)
    return [first, *(part(buffer) for buffer, copy in zip(beside, small) if copy is None)]


def part(buffer):
    """Returns the bytes of a PickleBuffer: as `Inside` if they lie in a pool, else as a view."""
    raw = buffer.raw()
    found = in_pool(raw)
    if found is None:
        return raw
    owner = memoryview(buffer).obj
    # Views of ours would count as somebody else's.
    raw.release()
    buffer.release()
    return Inside(_array_behind(owner), *found)


def _array_behind(owner):
    """Returns the array whose bytes `owner` shows, if there is one."""
    return getattr(getattr(owner, "base", None), "array", owner)


def array_parts(value):
    """Returns the parts of an array alone: first its description."""
    from ._numpy import described, shows_bytes

    array, word = described(value)
    first = json.dumps(word).encode()
    return [first] if array.nbytes == 0 else [first, part(pickle.PickleBuffer(shows_bytes(array)))]


def frozen(message):
    """Makes the parts in pools read-only, and cuts them out."""
    for part in message:
        if isinstance(part, Inside):
            part.buffer._ask()
    # Arrays first: then they cannot write to a buffer that goes along, too.
    for part in message:
        if isinstance(part, Inside) and make_readonly(part.owner):
            part.buffer._freeze_array()
    return [part.cut() if isinstance(part, Inside) else part for part in message]


def _send(sender, parts, word, pool, timeout):
    deadline = None if timeout is None else time.monotonic() + timeout

    def left():
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    message = [part if isinstance(part, Inside) else pool.copy(part, timeout=left()) for part in parts]
    sender.send(frozen(message), word, timeout=left())


def send(sender, value, pool, timeout):
    _send(sender, parts(value), WORD, pool, timeout)


def send_array(sender, value, pool, timeout):
    _send(sender, array_parts(value), ARRAY, pool, timeout)


def _wrong(text):
    return make(_BAD_ARGUMENT, _EINVAL, text)


def unpacked(buffer):
    if buffer.word != WORD:
        raise _wrong(f"a message of {len(buffer)} bytes that send_object() did not send: receive it with recv()")
    first, *beside = buffer.pieces
    stream, small = pickle.loads(first.tobytes())
    beside = iter(beside)
    return pickle.loads(stream, buffers=[next(beside) if copy is None else copy for copy in small])


def array(buffer):
    if buffer.word != ARRAY:
        raise _wrong(f"a message of {len(buffer)} bytes that send_array() did not send: receive it with recv()")
    from ._numpy import meant

    word, *beside = buffer.pieces
    try:
        return meant(json.loads(word.tobytes()), *beside)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise _wrong(f"the message says of its array what cannot be: {type(error).__name__}: {error}") from None
