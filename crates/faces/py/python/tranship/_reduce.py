"""Reducers for multiprocessing: large data goes through its pipes as a reference.

A reference is (place, key). Pickling parks the buffer in the program's store, for one taker. Unpickling takes it: each pickle is loaded
once. docs/decisions/references-are-parked.md says why.
"""

import secrets
import sys
from multiprocessing.reduction import ForkingPickler

from . import _objects
from ._errors import BadArgument, NoSuchName
from ._family import at, family
from ._native import Buffer

# Smaller data goes through the pipe itself: a reference costs two questions to the store, more than the copies.
LEAST = 128 << 10


def put_into_pool(data):
    """Returns a buffer with the bytes of a PickleBuffer, read-only: the one that they lie in, or a copy."""
    part = _objects.part(data)
    if isinstance(part, _objects.Inside):
        return _objects.frozen([part])[0]
    copy = family().pool.copy(part)
    copy.freeze()
    return copy


def _park(buffer):
    here = family()
    key = secrets.token_bytes(16)
    if buffer.released or len(buffer.pieces) > 1 or buffer.id is None:
        copy = here.pool.copy(buffer.tobytes())
        copy.freeze()
        buffer = copy
    here.store.park(key, [buffer])
    return here.place, key


def claimed(place, key):
    """Takes a parked buffer."""
    try:
        (buffer,) = at(tuple(place)).store.take(key)
    except NoSuchName:
        raise BadArgument(
            f"reference {key.hex()} was taken already, or its process is gone for more than 60 s: a pickle with large data is loaded once"
        ) from None
    return buffer


def reduce_buffer(buffer):
    """Pickles a buffer as a reference."""
    if len(buffer) < LEAST:
        return buffer.__reduce_ex__(4)
    return claimed, _park(buffer)


def _reduce_array(array):
    if array.nbytes < LEAST or array.dtype.hasobject:
        return array.__reduce__()
    from ._numpy import reduced

    reduced = reduced(array)
    if reduced is NotImplemented:
        return array.__reduce__()
    function, (*laid, data) = reduced
    return function, (*laid, put_into_pool(data))


def _reduce_masked(array):
    from ._numpy import reduced

    return array.__reduce__() if array.dtype.hasobject else reduced(array)


def _arrow_buffer(data):
    import pyarrow

    return pyarrow.py_buffer(data)


def _reduce_arrow(buffer):
    if buffer.size < LEAST:
        return buffer.__reduce_ex__(4)
    import pickle

    return _arrow_buffer, (put_into_pool(pickle.PickleBuffer(buffer)),)


def register():
    """Registers the reducers, for the packages that are imported."""
    ForkingPickler.register(Buffer, reduce_buffer)
    try:
        import numpy
    except ImportError:
        return
    for kind in (numpy.ndarray, numpy.recarray, numpy.matrix):
        ForkingPickler.register(kind, _reduce_array)
    ForkingPickler.register(numpy.ma.MaskedArray, _reduce_masked)
    if "torch" in sys.modules:
        from . import torch  # noqa: F401  it registers
    if arrow := sys.modules.get("pyarrow"):
        ForkingPickler.register(arrow.Buffer, _reduce_arrow)
