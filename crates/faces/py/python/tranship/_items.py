"""Values as buffers, for queues and stores: the pickle first, then the large parts, which lie in a pool already or are copied there once."""

import functools
import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler

from . import _objects
from ._native import Buffer, shared

# Smaller parts stay in the pickle.
LEAST = 4096
# The first byte of what describes a whole array, which no pickle begins with; values of these types are pickled as they are.
_ARRAY = b"A"
_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})


class _Pickler(ForkingPickler):
    """Shows all bytes of arrays, tensors and buffers out of band. What multiprocessing can send goes, too: locks, connections."""

    def reducer_override(self, value):
        kind = type(value)
        if kind is Buffer:
            return value.__reduce_ex__(5)
        if (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.ndarray):
            from ._numpy import reduced

            reduced = reduced(value)
            return value.__reduce_ex__(5) if reduced is NotImplemented else reduced
        if (torch := sys.modules.get("torch")) and isinstance(value, torch.Tensor):
            from .torch import reduced

            return reduced(value)
        if (arrow := sys.modules.get("pyarrow")) and kind is arrow.Buffer:
            return value.__reduce_ex__(5)
        return NotImplemented


@functools.lru_cache(256)
def _described(pool, dtype, shape):
    """Returns the buffer that describes an array. Most arrays are like one before."""
    description = pool.copy(_ARRAY + pickle.dumps((dtype, shape), 5))
    description.freeze()
    return description


@functools.lru_cache(256)
def _meant(description):
    return pickle.loads(description[1:])


def _is_plain_array(value):
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.nbytes < LEAST or not value.flags.c_contiguous:
        return False
    dtype = value.dtype
    # Records that are equal may differ in what is cached.
    return dtype.names is None and dtype.metadata is None and dtype.subdtype is None and not dtype.hasobject


def packed(value, pool):
    """Returns a value's buffers. Arrays in a pool become read-only."""
    if type(value) in _PLAIN:
        return [pool.copy(pickle.dumps(value, 5))]
    if _is_plain_array(value):
        return [_described(pool, value.dtype, value.shape), shared(value) or pool.copy(value)]
    return laid(*shown(value), pool)


def shown(value, least=LEAST):
    """Returns the pickle of a value, and its parts of at least so many bytes as PickleBuffers."""
    beside = []

    def is_small(data):
        if data.raw().nbytes < least:
            return True
        beside.append(data)
        return False

    stream = io.BytesIO()
    _Pickler(stream, 5, True, is_small).dump(value)
    return stream.getvalue(), beside


def laid(stream, beside, pool):
    """Returns what `shown` gives as buffers of a pool."""
    parts = [_objects.part(data) for data in beside]
    copied = [part if isinstance(part, _objects.Inside) else pool.copy(part) for part in parts]
    return [pool.copy(stream), *_objects.frozen(copied)]


def unpacked(buffers):
    """Restores a value. Its large parts are the buffers themselves."""
    first, *beside = buffers
    if first[0] != _ARRAY[0]:
        return pickle.loads(first, buffers=beside)
    from numpy import frombuffer

    dtype, shape = _meant(first.tobytes())
    array = frombuffer(beside[0], dtype)
    return array if len(shape) == 1 else array.reshape(shape)
