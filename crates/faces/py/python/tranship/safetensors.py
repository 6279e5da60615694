"""Weights of `.safetensors` files, once a machine: the first process that asks reads the file, all others get the same memory.

The file's format is read here; the package `safetensors` is not needed.
"""

import contextlib
import json
import os

from . import _family
from ._errors import NameTaken, TimedOut, of_kind
from ._store import _joined

__all__ = ["load"]

# Seconds between two looks whether the process that reads the file lives.
_LOOK = 0.5
_NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4", "F32": "<f4",
    "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
_ML_DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def load(path, store=None, framework="np"):
    """Returns the tensors of a file by name, in memory that all processes of a store share.

    `framework` is "np" (read-only arrays; bfloat16 and float8 need the package `ml_dtypes`) or "pt" (tensors; a process that writes one
    writes it for all). Without `store` the processes of one program share the memory. A file that has changed is read anew. `BadArgument`: the
    file is no `.safetensors` file. `OSError`: it cannot be read. `OutOfMemory`: the store's quota is too small.

    >>> import numpy, safetensors.numpy, tempfile, tranship.safetensors
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     safetensors.numpy.save_file({"weights": numpy.ones((2, 3))}, file.name)
    ...     tranship.safetensors.load(file.name)["weights"].shape
    (2, 3)
    """
    store = store or _of_the_program()
    path = os.path.realpath(path)
    stat = os.stat(path)
    key = f"safetensors {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    header, data = _shared(store, key, path)
    make = {"np": _arrays, "pt": _tensors}.get(framework)
    if make is None:
        raise ValueError(f"framework {framework!r}: there are 'np' and 'pt'")
    return {name: make(described, data) for name, described in header.items() if name != "__metadata__"}


def _of_the_program():
    return _joined(_family.family().place)


def _shared(store, key, path):
    """Returns what a file has. One process reads it; if it dies at that, another one does."""
    while True:
        with contextlib.suppress(KeyError):
            return store.get(key)
        try:
            store.put(f"{key} reader", os.getpid())
        except NameTaken:
            _wait(store, key)
            continue
        try:
            read = _read(path)
            with contextlib.suppress(NameTaken):
                store.put(key, read, pin=True)
            return read
        finally:
            store.delete(f"{key} reader")


def _wait(store, key):
    """Waits until a file is read, or its reader is gone."""
    try:
        store.wait(key, _LOOK)
    except TimedOut:
        with contextlib.suppress(KeyError):
            if not os.path.exists(f"/proc/{store.get(f'{key} reader')}"):
                store.delete(f"{key} reader")


def _read(path):
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= size - 8:
            raise of_kind("BadArgument", f"{path}: a header of {length} bytes in a file of {size}: it is no .safetensors file")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise of_kind("BadArgument", f"{path}: its header is no JSON: {error}") from None
        count = size - 8 - length
        data = _family.family().blocks.block(max(count, 1))
        at = 0
        with memoryview(data) as view:
            while at < count and (more := file.readinto(view[at:count])):
                at += more
    if at < count:
        raise OSError(f"{path}: it ends after {at} of {count} bytes")
    return header, data


def _part(described, data):
    start, stop = described["data_offsets"]
    if not 0 <= start <= stop <= len(data):
        raise of_kind("BadArgument", f"a tensor from byte {start} to {stop} of {len(data)}")
    return memoryview(data)[start:stop]


def _arrays(described, data):
    import numpy

    name = described["dtype"]
    if name in _ML_DTYPES:
        import ml_dtypes

        dtype = numpy.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    else:
        dtype = numpy.dtype(_known(_NUMPY, name))
    array = numpy.ndarray(described["shape"], dtype, _part(described, data))
    array.flags.writeable = False
    return array


def _tensors(described, data):
    import torch

    dtype = getattr(torch, _known(_TORCH, described["dtype"]))
    part = _part(described, data)
    if len(part) == 0:
        return torch.empty(described["shape"], dtype=dtype)
    return torch.frombuffer(part, dtype=dtype).reshape(described["shape"])


def _known(types, name):
    if name not in types:
        raise of_kind("BadArgument", f"a tensor of type {name!r}: known are {', '.join(types)}")
    return types[name]
