"""Arrays in pools. numpy is imported at the first use: nothing else here needs it."""

import functools
import math
import operator
import sys


def _shape(shape):
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(operator.index(n) for n in shape)


@functools.cache
def _memory():
    """A type between a buffer and an array: numpy leads views of views to the last array of the same type, so that a part's `base` is
    the array that its user has, which is made read-only with it."""
    import numpy

    class Memory(numpy.ndarray):
        pass

    return Memory


def empty(pool, shape, dtype=float, order="C", *, timeout=None):
    """An array with whatever the memory held before. It lives in the pool, and is sent without a copy."""
    import numpy

    dtype, shape = numpy.dtype(dtype), _shape(shape)
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} has Python objects in it, which are this process's alone")
    count = math.prod(shape)
    if count * dtype.itemsize == 0:
        return numpy.empty(shape, dtype, order)
    buffer = pool.alloc(count * dtype.itemsize, timeout=timeout)
    # frombuffer keeps a view of the buffer; numpy.ndarray(buffer=...) would keep only the object.
    whole = numpy.frombuffer(buffer, dtype).view(_memory())
    return whole.reshape(shape, order=order).view(numpy.ndarray)


def zeros(pool, shape, dtype=float, order="C", *, timeout=None):
    """As `empty`, filled with zeros."""
    array = empty(pool, shape, dtype, order, timeout=timeout)
    array.fill(0)
    return array


def array(pool, data, dtype=None, *, timeout=None):
    """A copy of an array, or of anything that numpy makes one of, in the pool."""
    import numpy

    source = numpy.asarray(data, dtype)
    copy = empty(pool, source.shape, source.dtype, timeout=timeout)
    copy[...] = source
    return copy


def make_readonly(value):
    """Marks an array, and those that it is a view of, read-only. Other objects stay as they are. Whether it was an array."""
    numpy = sys.modules.get("numpy")
    is_array = numpy is not None and isinstance(value, numpy.ndarray)
    while is_array and isinstance(value, numpy.ndarray):
        value.flags.writeable = False
        value = value.base
    return is_array
