"""A serialization family for Dask: what workers of one machine send each other goes by reference.

    tranship.dask.register()                                             # in each worker, before it connects: a preload
    dask.config.set({"distributed.comm...": ...}), or Client(..., serializers=["tranship", "dask", "pickle"])

A value without large arrays or buffers goes by the next family of the list. A reference is loaded once, on this machine.
"""

import secrets

from distributed.protocol import register_serialization_family

from . import _family, _items

__all__ = ["dumps", "loads", "register"]

NAME = "tranship"


def dumps(value, context=None):
    """Returns header and frames of a value: its large parts stay in the pool, and the header says where.

    `NotImplementedError`: the value has none."""
    stream, beside = _items.shown(value)
    if not beside:
        raise NotImplementedError(f"{type(value).__name__} without parts of {_items.LEAST} bytes: another family sends it")
    here = _family.family()
    key = secrets.token_bytes(16)
    here.store.park(key, _items.laid(stream, beside, here.pool))
    return {"serializer": NAME, "place": here.place, "key": key.hex()}, []


def loads(header, frames):
    """Returns the value."""
    return _items.unpacked(_family.at(tuple(header["place"])).store.take(bytes.fromhex(header["key"])))


def register():
    """Makes the family known to Dask, as "tranship".

    >>> import distributed.protocol, numpy, tranship.dask
    >>> tranship.dask.register()
    >>> header, frames = distributed.protocol.serialize(numpy.ones(1000), serializers=["tranship"])
    >>> frames, distributed.protocol.deserialize(header, frames, deserializers=["tranship"]).sum()
    ([], 1000.0)
    """
    register_serialization_family(NAME, dumps, loads)
