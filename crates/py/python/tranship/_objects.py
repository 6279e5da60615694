"""Any object as one message: its pickle, and beside it, uncopied, what lies in pools already.

Unpickling runs what the sender says: take objects only from whom you would let run code here.
"""

import pickle

from ._errors import make
from ._native import in_pool
from ._numpy import make_readonly

# The word that travels with an object: "tr-pickl", as a number.
META = int.from_bytes(b"tr-pickl", "big")
# Shorter ones are not worth a piece of their own.
_LEAST = 1024
_BAD_ARGUMENT = 14
_EINVAL = 22


def rebuilt(data):
    """What a pickled Buffer becomes: a view of its bytes."""
    return memoryview(data)


def pieces(value, pool):
    """The message: the pickle, then what goes beside it."""
    beside = []

    def keep(buffer):
        with buffer.raw() as raw:
            if raw.nbytes < _LEAST:
                return True
            found = in_pool(raw)
            if found is None:
                beside.append(pool.copy(raw))
                return False
            where, start, length = found
        make_readonly(memoryview(buffer).obj)
        where._freeze_array()
        beside.append(where.slice(start, start + length))
        return False

    stream = pickle.dumps(value, protocol=5, buffer_callback=keep)
    return [pool.copy(stream), *beside]


def send(sender, value, pool, timeout):
    sender.send(pieces(value, pool), META, timeout=timeout)


def unpacked(buffer):
    if buffer.meta != META:
        text = f"a message of {len(buffer)} bytes that send_object() did not send: receive it with recv()"
        raise make(_BAD_ARGUMENT, _EINVAL, text)
    stream, *beside = buffer.pieces
    return pickle.loads(stream.tobytes(), buffers=beside)
