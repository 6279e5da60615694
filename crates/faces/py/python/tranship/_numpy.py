"""Arrays in pools; `Pool.empty` uses `plan` to `shaped`. Imported at the first use, as nothing else here needs numpy."""

import functools
import math
import operator

import numpy


def _shape(shape):
    if type(shape) is not tuple:  # an exception costs as much as all the rest
        try:
            return (operator.index(shape),)
        except TypeError:
            pass
    return tuple(map(operator.index, shape))


def plan_once(shape, dtype):
    """Of an array: its bytes, whether it is a plain row, its shape."""
    dtype, shape = numpy.dtype(dtype), _shape(shape)
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} has Python objects in it, which are this process's alone")
    return math.prod(shape) * dtype.itemsize, len(shape) == 1, shape


# Kept, as most arrays are like one before. It has nothing in which types that are equal can differ.
plan = functools.lru_cache(256, typed=True)(plan_once)

# An array of one dimension. It keeps a view of the buffer; numpy.ndarray(buffer=...) would keep only the object.
row = numpy.frombuffer
nothing = numpy.empty


class _Memory(numpy.ndarray):
    """A type between a buffer and an array: numpy leads views of views to the last array of the same type, so that a part's `base` is
    the array that its user has, which is made read-only with it."""


def shaped(row, shape, order):
    return row.view(_Memory).reshape(shape, order=order).view(numpy.ndarray)


def zeros(pool, shape, dtype=None, order="C", *, timeout=None):
    """As `empty`, filled with zeros."""
    array = pool.empty(shape, dtype, order, timeout=timeout)
    array.fill(0)
    return array


def array(pool, data, dtype=None, *, timeout=None):
    """A copy of an array, or of anything that numpy makes one of, in the pool."""
    source = numpy.asarray(data, dtype)
    copy = pool.empty(source.shape, source.dtype, timeout=timeout)
    copy[...] = source
    return copy
