"""numpy, DLPack, pickle."""

import pickle

import numpy
import pytest
from conftest import apart

import tranship


def test_arrays_of_a_pool_are_sent_as_they_are(channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    image = pool.empty((4, 6), numpy.uint16)
    image[:] = 7
    part = image[1:3]
    sender.send(part)
    assert not part.flags.writeable and not image.flags.writeable
    got = numpy.frombuffer(first.result(), numpy.uint16)
    assert got.shape == (12,) and (got == 7).all() and not got.flags.writeable


def test_parts_of_a_row_are_sent_with_it(channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    row = pool.zeros(1000, numpy.uint8)
    part = row[10:20][2:]
    sender.send(part)
    assert len(first.result()) == 8
    assert not part.flags.writeable and not row.flags.writeable


def test_asarray_shows_the_buffer_itself(pool):
    buffer = pool.alloc(16)
    array = numpy.asarray(buffer)
    array[:] = 5
    assert array.dtype == numpy.uint8 and bytes(memoryview(buffer)) == b"\5" * 16
    assert buffer.exports >= 1
    del array
    assert buffer.exports == 0


def test_shapes_orders_and_types(pool):
    record = numpy.dtype([("a", "i4"), ("b", "f8")])
    for shape in [(), 3, (2, 3), [4], (0, 5), numpy.int64(2)]:
        # More than once: what the first one found out is kept.
        for dtype in [numpy.complex64, "i2", float, None, record] * 2:
            want = numpy.empty(shape, dtype)
            got = pool.empty(shape, dtype)
            assert got.shape == want.shape and got.dtype == want.dtype
    for shape in [2.0, "ab", [[3]], ("a", 3)]:
        with pytest.raises(TypeError):
            pool.empty(shape)
    with pytest.raises(TypeError):
        pool.empty(3, "no such type")
    assert pool.empty((3, 4), order="F").flags.f_contiguous
    assert (pool.zeros(1000) == 0).all()
    assert pool.zeros(5, record)["b"].sum() == 0
    copy = pool.array([[1, 2], [3, 4]], numpy.int8)
    assert copy.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="Python objects"):
        pool.empty(3, object)


def test_dlpack_says_read_only(pool):
    buffer = pool.copy(b"\1\2\3")
    assert buffer.__dlpack_device__() == (1, 0)
    writable = numpy.from_dlpack(buffer)
    assert writable.tolist() == [1, 2, 3] and buffer.exports == 1
    del writable
    assert buffer.exports == 0
    buffer.freeze()
    shown = numpy.from_dlpack(buffer)
    assert shown.tolist() == [1, 2, 3] and not shown.flags.writeable
    del shown
    with pytest.raises(BufferError, match="DLPack"):
        buffer.__dlpack__()
    capsule = buffer.__dlpack__(max_version=(1, 3))
    assert "dltensor_versioned" in repr(capsule) and buffer.exports == 1
    del capsule
    assert buffer.exports == 0
    with pytest.raises(BufferError):
        buffer.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    with pytest.raises(BufferError):
        buffer.__dlpack__(max_version=(1, 0), copy=True)


def test_objects_take_their_arrays_along_uncopied(channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    sender.send(pool.alloc(1))
    first.result()

    inside = pool.empty(4000)
    inside[:] = 1
    foreign = numpy.arange(3000)
    small = numpy.arange(3)
    sender.send_object({"inside": inside, "foreign": foreign, "small": small, "text": "t"}, pool)
    got = receiver.recv_object()
    assert got["text"] == "t" and (got["inside"] == 1).all()
    assert (got["foreign"] == foreign).all() and (got["small"] == small).all()
    assert not got["inside"].flags.writeable and not got["foreign"].flags.writeable
    assert foreign.flags.writeable and not inside.flags.writeable

    sender.send_object(b"tiny", pool)
    assert receiver.recv_object() == b"tiny"


def test_what_others_can_still_write_is_not_sent_in_an_object(channel, pool):
    sender, receiver = channel
    buffer = pool.copy(bytes(4096))
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="has 1 writable view,"):
        sender.send_object({"buffer": buffer}, pool)
    assert not buffer.readonly
    view.release()
    taken = apart(receiver.recv_object)
    sender.send_object({"buffer": buffer}, pool)
    assert bytes(taken.result()["buffer"]) == bytes(4096)
    assert buffer.readonly


def test_an_array_goes_along_with_its_buffer(channel, pool):
    sender, receiver = channel
    buffer = pool.copy(bytes(4096))
    taken = apart(receiver.recv_object)
    sender.send_object([buffer, numpy.asarray(buffer)], pool)
    assert [bytes(one) for one in taken.result()] == [bytes(4096)] * 2


def test_the_time_of_a_sent_object_is_for_its_memory_too(domain, channel):
    sender, _ = channel
    small = domain.pool("small", 1 << 20, chunk_bytes=1 << 16)
    held = small.alloc(1 << 20)
    for timeout in (0, 0.03):
        with pytest.raises(MemoryError):
            sender.send_object([1, 2], small, timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        sender.send_object([1, 2], small, timeout=-1)
    assert len(held) == 1 << 20


def test_arrays_of_a_pool_of_level_half_are_refused_before_they_change(domain, channel):
    sender, _ = channel
    half = domain.pool("half", 1 << 20, trust="half")
    array = half.zeros(1000)
    with pytest.raises(BufferError, match=r'"half".* 1 writable view.*not sent: .*alloc'):
        sender.send(array)
    with pytest.raises(BufferError, match='"half"'):
        sender.send_object({"array": array}, half)
    array[0] = 1


def test_an_object_that_lies_in_a_part_of_a_buffer(channel, pool):
    sender, receiver = channel
    table = pool.zeros((100, 100))
    table[10] = 3
    taken = apart(receiver.recv_object)
    sender.send_object(table[10:30], pool)
    got = taken.result()
    assert got.shape == (20, 100) and (got[0] == 3).all() and (got[1] == 0).all()


def test_what_is_no_object_is_an_error(channel):
    sender, receiver = channel
    sender.send_inline(b"\x80\x05.")
    with pytest.raises(tranship.BadArgument, match="3 bytes"):
        receiver.recv_object()


def test_buffers_are_pickled_beside_or_within(pool):
    buffer = pool.copy(b"abc" * 10)
    beside = []
    stream = pickle.dumps(buffer, protocol=5, buffer_callback=beside.append)
    assert len(beside) == 1 and b"abcabc" not in stream
    assert bytes(pickle.loads(stream, buffers=beside)) == b"abc" * 10
    for protocol in range(2, 6):
        assert bytes(pickle.loads(pickle.dumps(buffer, protocol))) == b"abc" * 10


def test_other_things_are_not_pickled(domain, channel, pool):
    for thing in (domain, pool, *channel):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)
