"""`multiprocessing.shared_memory` with memory from the manager: nothing in /dev/shm, no tracker; the last process that closes a block frees it."""

import os
import secrets
import types
from multiprocessing import shared_memory as _standard

from .. import _family
from .._errors import NameTaken, NoSuchName, OutOfMemory

__all__ = ["ShareableList", "SharedMemory"]


def _key(name):
    return b"block/" + name.encode()


class SharedMemory:
    """A block of `size` bytes of memory with a name, which all processes of the program may write. It is zeros at first.

    `FileExistsError`: `create`, and there is one of that name. `FileNotFoundError`: there is none. `MemoryError`: the manager grants no
    more.

    >>> from tranship.mp.shared_memory import SharedMemory
    >>> block = SharedMemory(create=True, size=10)
    >>> block.buf[0] = 7
    >>> other = SharedMemory(block.name)
    >>> other.buf[0]
    7
    >>> other.close(); block.close()
    """

    def __init__(self, name=None, create=False, size=0, *, track=True, _place=None):
        if not size >= 0:
            raise ValueError("'size' must be a positive integer")
        if create and size == 0:
            raise ValueError("'size' must be a positive number different from zero")
        if name is None and not create:
            raise ValueError("'name' can only be None if create=True")
        self._here = _family.at(_place) if _place else _family.family()
        self._unlinked = False
        self._name = name if name is not None else _new_name()
        self._buffer = self._made(size) if create else self._found()
        self._view = memoryview(self._buffer)
        self._process = os.getpid()

    def _made(self, size):
        try:
            return self._here.store.block(_key(self._name), size)
        except NameTaken:
            raise FileExistsError(17, "File exists", self._name) from None
        except OutOfMemory as error:
            raise MemoryError(f"a block of {size} bytes: {error}") from None

    def _found(self):
        try:
            return self._here.store.attach(_key(self._name))
        except NoSuchName:
            raise FileNotFoundError(2, "No such file or directory", self._name) from None

    def __del__(self):
        try:
            self.close()
        except Exception:  # views are left, or the interpreter goes down
            pass

    def __reduce__(self):
        return _opened, (type(self), self._name, self._here.place)

    def __repr__(self):
        return f"{type(self).__name__}({self._name!r}, size={self.size})"

    @property
    def buf(self):
        """The bytes, as a writable memoryview; None when it is closed."""
        if self._process != os.getpid():
            self._open_anew()
        return self._view

    def _open_anew(self):
        """A forked child has none of its parent's memory."""
        self._process = os.getpid()
        if self._buffer is not None:
            self._here = _family.at(self._here.place)
            self._buffer = self._found()
            self._view = memoryview(self._buffer)

    @property
    def name(self):
        """The name by which other processes open it."""
        return self._name

    @property
    def size(self):
        """The size in bytes."""
        return 0 if self.buf is None else len(self._buffer)

    def close(self):
        """Closes it here. The last process that does so frees the block."""
        if self._buffer is None or self._process != os.getpid():
            return
        if self._view is not None:
            self._view.release()
            self._view = None
        self._buffer.release()
        self._buffer = None
        if _family.joined(self._here.place) is self._here:
            try:
                self._here.store.detach(_key(self._name))
            except NoSuchName:  # its name went before
                pass

    def unlink(self):
        """Forgets the name: nobody can open the block any more."""
        was_freed = self._buffer is None and not self._unlinked
        self._unlinked = True
        try:
            self._here.store.unlink(_key(self._name))
        except NoSuchName:
            if not was_freed:
                raise FileNotFoundError(2, "No such file or directory", self._name) from None


def _opened(kind, name, place):
    return kind(name, _place=tuple(place))


def _new_name():
    return f"tranship_{secrets.token_hex(4)}"


class ShareableList(_standard.ShareableList):
    """A list of fixed length in a block. Items are int, float, bool, str, bytes and None.

    >>> from tranship.mp.shared_memory import ShareableList
    >>> listed = ShareableList(["text", 2])
    >>> ShareableList(name=listed.shm.name)[1]
    2
    >>> listed.shm.close()
    """

    # The standard one, whose blocks are ours.
    __init__ = types.FunctionType(
        _standard.ShareableList.__init__.__code__,
        {**vars(_standard), "SharedMemory": SharedMemory},
        "__init__",
        _standard.ShareableList.__init__.__defaults__,
    )
    __init__.__kwdefaults__ = _standard.ShareableList.__init__.__kwdefaults__
