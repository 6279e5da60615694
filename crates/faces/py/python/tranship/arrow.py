"""Arrow tables in pools: IPC written into one buffer, and read where it lies. pandas' frames through it.

    buffer = tranship.arrow.write(table)         # one copy, into the program's pool
    sender.send(buffer)                          # or a queue's put, a store's put
    table = tranship.arrow.read(buffer)          # no copy: the columns are the buffer
"""

import pyarrow
from pyarrow import ipc

from . import _family

__all__ = ["read", "read_pandas", "write", "write_pandas"]


def write(table, pool=None):
    """Returns a read-only buffer with a table, or a record batch, as an IPC stream. Without `pool` it lies in the program's own pool.

    `OutOfMemory`: the pool has no room, and the call has waited for it.

    >>> import pyarrow, tranship.arrow
    >>> tranship.arrow.read(tranship.arrow.write(pyarrow.table({"n": [1, 2, 3]}))).num_rows
    3
    """
    measure = pyarrow.MockOutputStream()
    _stream(measure, table)
    buffer = (pool or _family.family().pool).alloc(measure.size())
    with memoryview(buffer) as view:
        _stream(pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(view)), table)
    buffer.freeze()
    return buffer


def _stream(sink, table):
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)


def read(buffer):
    """Returns the table of a buffer that `write` made. Its columns are the buffer's memory, and keep it.

    `pyarrow.ArrowInvalid`: the buffer has no IPC stream.

    >>> import pyarrow, tranship.arrow
    >>> tranship.arrow.read(tranship.arrow.write(pyarrow.table({"n": [1, 2]}))).column_names
    ['n']
    """
    return ipc.open_stream(pyarrow.py_buffer(buffer)).read_all()


def write_pandas(frame, pool=None):
    """Returns a read-only buffer with a frame of pandas.

    >>> import pandas, tranship.arrow
    >>> tranship.arrow.read_pandas(tranship.arrow.write_pandas(pandas.DataFrame({"n": [1, 2]}))).n.sum()
    3
    """
    return write(pyarrow.Table.from_pandas(frame), pool)


def read_pandas(buffer):
    """Returns the frame of a buffer that `write_pandas` made. Columns of numbers without gaps are the buffer's memory, read-only."""
    return read(buffer).to_pandas(split_blocks=True)
