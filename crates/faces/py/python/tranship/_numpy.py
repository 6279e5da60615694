"""Arrays: in pools, of which `Pool.empty` uses `plan` to `shaped`, and in messages. Imported at the first use, as nothing else here needs numpy."""

import functools
import math
import operator
import pickle

import numpy

from ._native import lies_in


def _shape(shape):
    if type(shape) is not tuple:  # an exception costs as much as all the rest
        try:
            return (operator.index(shape),)
        except TypeError:
            pass
    return tuple(map(operator.index, shape))


def plan_once(shape, dtype):
    """Returns an array's size in bytes (None if no memory can hold it), whether it is a plain row, and its shape."""
    dtype, shape = numpy.dtype(dtype), _shape(shape)
    if any(length < 0 for length in shape):
        raise ValueError(f"shape is {shape}: lengths are from 0 on")
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} has Python objects in it, which are this process's alone")
    bytes = math.prod(shape) * dtype.itemsize if dtype.itemsize else None
    return bytes, len(shape) == 1, shape


# Kept, as most arrays are like one before. It has nothing in which types that are equal can differ.
plan = functools.lru_cache(256, typed=True)(plan_once)

# An array of one dimension. It keeps its source object, and so a view of the buffer.
row = numpy.frombuffer
nothing = numpy.empty


class _Memory(numpy.ndarray):
    """A type between a buffer and an array: numpy leads views of views to the last array of the same type, so that a part's `base` is
    the array that its user has, which is made read-only with it."""


def shaped(row, shape, order):
    return row.view(_Memory).reshape(shape, order=order).view(numpy.ndarray)


def zeros(pool, shape, dtype=None, order="C", *, timeout=None):
    """Makes an array like `empty`, filled with zeros."""
    array = pool.empty(shape, dtype, order, timeout=timeout)
    array.fill(0)
    return array


def array(pool, data, dtype=None, *, timeout=None):
    """A copy of an array, or of anything that numpy makes one of, in the pool."""
    source = numpy.asarray(data, dtype)
    copy = pool.empty(source.shape, source.dtype, timeout=timeout)
    copy[...] = source
    return copy


def shown(view, dtype, copy):
    return numpy.array(view, dtype, copy=copy)


def _span(array):
    """Returns the address of its first byte, and the end of its last one."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, low
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high + array.itemsize


def place(array):
    """Returns address and length of its bytes, if all between the first and the last are its own."""
    _check(array)
    low, high = _span(array)
    if high - low != array.nbytes:
        raise BufferError(
            f"an array of {array.nbytes} bytes that lies in {high - low} has gaps, or items twice: pool.array() copies it without them,"
            " send_array() sends it as it lies"
        )
    return low, high - low


def _check(array):
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("a masked array has a mask beside its data: send_object() sends both")
    if array.dtype.hasobject:
        raise TypeError(f"dtype {array.dtype} has Python objects in it, which are this process's alone: send_object() sends them")


class _Bytes:
    """The object that `shows_bytes` makes an array of: it keeps the array that owns the bytes."""

    def __init__(self, array):
        low, high = _span(array)
        self.array = array
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (high - low,), "data": (low, not array.flags.writeable)}


def shows_bytes(array):
    """Returns all bytes from its first to its last, as an array that keeps it."""
    return numpy.asarray(_Bytes(array)) if array.nbytes else numpy.empty(0, numpy.uint8)


def _as_it_lies(array):
    """Returns it without gaps, unless it lies in a pool: a copy is made without gaps."""
    low, high = _span(array)
    if high - low == array.nbytes or lies_in(low, high - low) is not None:
        return array
    return numpy.ascontiguousarray(array).reshape(array.shape)


def _laid(array):
    """Returns shape, strides, and the offset of the first item in its bytes."""
    low, _ = _span(array)
    return array.shape, array.strides, array.__array_interface__["data"][0] - low


def rebuilt(kind, dtype, shape, strides, offset, data):
    """Returns a read-only array over bytes. numpy checks that all of it lies within them."""
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    # Nothing is nowhere: other bytes that cannot be written do as well.
    row = numpy.frombuffer(data if dtype.itemsize and math.prod(shape) else b"", numpy.uint8)
    array = numpy.ndarray(shape, dtype, row, offset, strides)
    array.flags.writeable = False
    return array if kind is None else array.view(kind)


def masked(data, mask, fill_value, hard):
    array = numpy.ma.MaskedArray(data, mask=mask, fill_value=fill_value, hard_mask=hard, copy=False)
    array.flags.writeable = False
    return array


# Classes whose arrays are no more than their memory seen so.
_KINDS = {numpy.ndarray: None, numpy.memmap: None, numpy.matrix: numpy.matrix, numpy.recarray: numpy.recarray}


def reduced(value):
    """Pickles an array, with its bytes beside the pickle. An array of an unknown kind stays as it is."""
    kind = type(value)
    if kind is numpy.ma.MaskedArray:
        return masked, (value.data, value._mask, value._fill_value, value._hardmask)
    if kind not in _KINDS or value.dtype.hasobject:
        return NotImplemented
    array = _as_it_lies(value)
    return rebuilt, (_KINDS[kind], value.dtype, *_laid(array), pickle.PickleBuffer(shows_bytes(array)))


def described(value):
    """Returns an array, and its layout in its bytes as JSON."""
    array = numpy.asanyarray(value)
    _check(array)
    array = _as_it_lies(array)
    shape, strides, offset = _laid(array)
    return array, {"dtype": _said(array.dtype), "shape": shape, "strides": strides, "offset": offset}


def _said(dtype):
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_said(base), shape]
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        return {
            "names": dtype.names,
            "formats": [_said(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
            "aligned": dtype.isalignedstruct,
        }
    # Of types that are not numpy's own that says only how long they are.
    return dtype.str if numpy.dtype(dtype.str) == dtype else dtype.name


def _type(said):
    if isinstance(said, dict):
        return numpy.dtype({**said, "formats": [_type(one) for one in said["formats"]]}, align=said.pop("aligned"))
    if isinstance(said, list):
        base, shape = said
        return numpy.dtype((_type(base), tuple(shape)))
    try:
        return numpy.dtype(str(said))
    except TypeError:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, said))


def meant(word, data=b""):
    shape, strides = tuple(word["shape"]), tuple(word["strides"])
    return rebuilt(None, _type(word["dtype"]), shape, strides, word["offset"], data)
