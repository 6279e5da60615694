"""The whole of `multiprocessing`, with large data by reference.

`import tranship.mp as mp` in the place of `import multiprocessing as mp`. Arrays, buffers and what pickle shows out of band arrive as the
sender's memory, read-only; small things travel as before. The start method is forkserver unless a program sets another one: a forked child
has none of its parent's pools. docs/mp.md says what differs.
"""

import importlib
import multiprocessing as _multiprocessing
from multiprocessing import forkserver as _forkserver

from .. import _family, _reduce
from . import _context, shared_memory
from ._context import Executor

_reduce.register()
# The fork server imports this package once for all workers, unless the program names other modules.
if _forkserver._forkserver._preload_modules == ["__main__"]:
    _forkserver.set_forkserver_preload(["__main__", __name__])
_default = _context.default
_names = [name for name in dir(_default) if not name.startswith("_")]
globals().update({name: getattr(_default, name) for name in _names})
__all__ = [*_names, "Executor", "array", "empty", "shared_memory", "zeros"]


def empty(shape, dtype=None, order="C"):
    """Returns an array born in this process's pool: it is sent without a copy. Sending makes it read-only. It has the bytes that the memory
    held before. `OutOfMemory`: the pool, of 16 GiB and 16,384 buffers, is full.

    >>> import tranship.mp as mp
    >>> mp.empty((2, 3), "f4").nbytes
    24
    """
    return _family.family().pool.empty(shape, dtype, order)


def zeros(shape, dtype=None, order="C"):
    """Returns an array of zeros born in this process's pool.

    >>> import tranship.mp as mp
    >>> mp.zeros((2, 3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _family.family().pool.zeros(shape, dtype, order)


def array(data, dtype=None):
    """Returns a copy of an array, or of what numpy makes one of, in this process's pool.

    >>> import tranship.mp as mp
    >>> mp.array([1, 2]).tolist()
    [1, 2]
    """
    return _family.family().pool.array(data, dtype)


def __getattr__(name):
    """Returns what `multiprocessing` has beside, its modules included."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if hasattr(_multiprocessing, name):
        return getattr(_multiprocessing, name)
    try:
        return importlib.import_module(f"multiprocessing.{name}")
    except ImportError:
        raise AttributeError(f"neither {__name__!r} nor multiprocessing has {name!r}") from None
