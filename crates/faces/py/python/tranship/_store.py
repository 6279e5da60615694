"""`tranship.Store`: immutable values by key, by reference."""

from . import _family, _items
from ._errors import NoSuchName, of_kind
from ._notebook import amount, table


def _bytes(key):
    return key.encode() if isinstance(key, str) else bytes(key)


class Store:
    """Immutable values by key, which one process keeps for many.

    `Store.create(name)` makes a store, `Store(name)` joins it from another process. A value is any object that can be pickled. Its arrays
    and buffers are read-only, and the same memory for all readers; a reader keeps a value as long as it likes, also when the store has
    evicted it. **Getting a value runs what its writer says**, as unpickling does.

    Keys are str or bytes, of at most 4096 bytes. An object of it can be pickled, and sent to any process of the same manager.

    >>> import numpy, tranship
    >>> with tranship.Store.create("an example") as store:
    ...     store.put("weights", numpy.ones(1000))
    ...     int(store.get("weights").sum())
    1000
    """

    def __init__(self, name, *, domain=None, timeout=None):
        """Joins the store of that name, and waits for it at most `timeout` seconds: `TimedOut`."""
        self._place = _family.store(domain, name, timeout).place

    @classmethod
    def create(cls, name, *, quota_bytes=1 << 30, end_with_owner=False, domain=None):
        """Makes a store in this process: it ends with the process, or with `close()`.

        Values of more than `quota_bytes` in sum push out those that were not used for longest. With `end_with_owner` values end with the
        process that put them. `NameTaken`: there is one of that name."""
        made = cls.__new__(cls)
        made._place = _family.create_store(domain, name, quota_bytes, end_with_owner).place
        return made

    def __reduce__(self):
        return _joined, (self._place,)

    def __repr__(self):
        return f"<tranship.Store {self._place[1]!r}>"

    def _repr_html_(self):
        return table(repr(self), ("", ""), [("under keys", amount(self.nbytes))])

    @property
    def name(self):
        """The name."""
        return self._place[1]

    @property
    def nbytes(self):
        """The bytes of all values that are under keys."""
        return self._here.store.nbytes()

    @property
    def _here(self):
        return _family.at(self._place)

    def put(self, key, value, *, pin=False):
        """Keeps a value under a key that has none (`NameTaken`). Arrays in a pool of this process become read-only, others are copied once.

        `OutOfMemory`: the value is larger than the quota that pinned ones leave."""
        here = self._here
        here.store.put(_bytes(key), _items.packed(value, here.pool))
        if pin:
            self.pin(key)

    def get(self, key):
        """Returns the value of a key. `KeyError`: there is none, or it was evicted."""
        try:
            return _items.unpacked(self._here.store.get(_bytes(key), 0))
        except NoSuchName:
            raise KeyError(key) from None

    def wait(self, key, timeout=None):
        """Returns the value of a key, and waits until it is put, at most `timeout` seconds: `TimedOut`."""
        try:
            return _items.unpacked(self._here.store.get(_bytes(key), timeout))
        except NoSuchName:
            text = f"store {self.name!r} got no value under {key!r} in {timeout} s"
            raise of_kind("TimedOut", text) from None

    def delete(self, key):
        """Forgets a value. Its readers keep it. `KeyError`: there is none."""
        self._of(key, lambda store, key: store.delete(key))

    def pin(self, key):
        """Keeps a value from being evicted. `KeyError`: there is none."""
        self._of(key, lambda store, key: store.pin(key, True))

    def unpin(self, key):
        """Lets a value be evicted again. `KeyError`: there is none."""
        self._of(key, lambda store, key: store.pin(key, False))

    def _of(self, key, what):
        try:
            what(self._here.store, _bytes(key))
        except NoSuchName:
            raise KeyError(key) from None

    def close(self):
        """Leaves the store. If this process keeps it, it ends."""
        _family.leave(self._place)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


def _joined(place):
    store = Store.__new__(Store)
    store._place = tuple(place)
    return store


Store.__module__ = __package__
