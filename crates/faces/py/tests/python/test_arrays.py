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
        # More than once: the findings of the first one are kept.
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
    sender.send(b"\x80\x05.")
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


def sent(channel, what, pool=None):
    """What arrives."""
    sender, receiver = channel
    got = apart(receiver.recv)
    sender.send(what)
    return got.result()


def bfloat16(length):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return numpy.arange(length).astype(ml_dtypes.bfloat16)


def float8(length):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return (numpy.arange(length) % 16).astype(ml_dtypes.float8_e4m3fn)


RECORD = numpy.dtype([("a", "i4"), ("b", "f8", (2,)), ("c", "M8[us]"), ("d", "S3")], align=True)


def record(length):
    all = numpy.zeros(length, RECORD)
    all["a"] = numpy.arange(length)
    all["b"] = numpy.arange(2 * length).reshape(length, 2)
    return all


KINDS = {
    "plain": lambda n: numpy.arange(n, dtype=numpy.float32),
    "big-endian": lambda n: numpy.arange(n).astype(">i8"),
    "two dimensions": lambda n: numpy.arange(n * 4).reshape(n, 4),
    "order F": lambda n: numpy.asfortranarray(numpy.arange(n * 4).reshape(n, 4)),
    "turned": lambda n: numpy.arange(n * 6).reshape(n, 2, 3).transpose(1, 0, 2),
    "no dimension": lambda n: numpy.array(n * 0.5),
    "zero-size": lambda n: numpy.empty((n, 0, 3), numpy.int16),
    "no bytes an item": lambda n: numpy.empty(n, "V0"),
    "boolean": lambda n: numpy.arange(n) % 3 == 0,
    "complex": lambda n: numpy.arange(n) * 1j,
    "text": lambda n: numpy.arange(n).astype("U7"),
    "times": lambda n: numpy.arange(n).astype("M8[ms]"),
    "spans of time": lambda n: numpy.arange(n).astype("m8[3s]"),
    "record": record,
    "bfloat16": bfloat16,
    "float8": float8,
}


def same(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert numpy.array_equal(numpy.asarray(got), numpy.asarray(want))


def inside(pool, want):
    """The array in the pool, laid out as it was."""
    order = "F" if want.flags.f_contiguous and not want.flags.c_contiguous else "C"
    array = pool.empty(want.shape, want.dtype, order)
    array[...] = want
    return array


def place(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("length", [3, 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_an_array_of_any_kind_is_sent_with_its_type_and_shape(channel, pool, kind, length):
    sender, receiver = channel
    want = KINDS[kind](length)
    for array in (want, inside(pool, want)):
        got = apart(receiver.recv_array)
        allocs = pool.stats()["allocs"]
        sender.send_array(array, pool)
        got = got.result()
        same(got, want)
        assert type(got) is numpy.ndarray
        assert not got.flags.writeable
        taken = pool.stats()["allocs"] - allocs
        assert array is want or array.nbytes == 0 or taken <= 2, "only what says how it is, and the message's list"


@pytest.mark.parametrize("length", [3, 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_an_array_of_any_kind_in_an_object_is_the_same_at_every_size(channel, pool, kind, length):
    sender, receiver = channel
    want = KINDS[kind](length)
    for array in (want, inside(pool, want)):
        got = apart(receiver.recv_object)
        sender.send_object({"array": array}, pool)
        got = got.result()["array"]
        same(got, want)
        assert not got.flags.writeable
        with pytest.raises(ValueError):
            got.flags.writeable = True


LARGE = [kind for kind in KINDS if kind not in ("no dimension", "zero-size", "no bytes an item")]


def shows(buffers, array):
    """Whether one of the message's pieces is the array's memory: it has the same id, which no copy has."""
    from tranship import _native

    low, length = (place(array), array.nbytes)
    found = _native.lies_in(low, length)
    return found is not None and found[0].id in [buffer.id for buffer in buffers]


@pytest.mark.parametrize("how", ["send_array", "send_object"])
@pytest.mark.parametrize("kind", LARGE)
def test_an_array_of_a_pool_goes_by_reference_whatever_its_type(channel, pool, kind, how):
    sender, receiver = channel
    array = inside(pool, KINDS[kind](5000))
    message = apart(receiver.recv)
    getattr(sender, how)(array, pool)
    assert shows(message.result().pieces, array)
    assert not array.flags.writeable


def classes(pool):
    table = pool.array(numpy.arange(6000).reshape(600, 10))
    rows = pool.array(record(600))
    yield "recarray", rows.view(numpy.recarray), rows
    yield "matrix", table.view(numpy.matrix), table
    mask = pool.array(numpy.arange(6000).reshape(600, 10) % 7 == 0)
    yield "masked", numpy.ma.array(table, mask=mask, fill_value=9, copy=False), table
    yield "masked without a mask", numpy.ma.array(table, copy=False), table
    yield "rows", table[10:500:3], table
    yield "columns", table[:, 2:9:2], table
    yield "backwards", table[::-1, ::-2], table
    yield "one column", table[:, 3], table


@pytest.mark.parametrize("number", range(8))
def test_arrays_of_other_classes_and_strides_are_sent_in_an_object_by_reference(channel, pool, number):
    sender, receiver = channel
    name, array, memory = list(classes(pool))[number]
    message = apart(receiver.recv)
    sender.send_object([array], pool)
    assert shows(message.result().pieces, memory), name
    taken = apart(receiver.recv_object)
    sender.send_object([array], pool)
    (got,) = taken.result()
    assert type(got) is type(array) and got.dtype == array.dtype
    assert numpy.array_equal(numpy.asarray(got), numpy.asarray(array))
    if isinstance(array, numpy.ma.MaskedArray):
        assert numpy.array_equal(numpy.ma.getmaskarray(got), numpy.ma.getmaskarray(array))
        assert got.fill_value == array.fill_value
    assert not got.flags.writeable and not memory.flags.writeable
    if name in ("masked", "masked without a mask"):
        with pytest.raises(TypeError, match="mask.*send_object"):
            sender.send_array(array, pool)
        with pytest.raises(TypeError, match="mask.*send_object"):
            sender.send(array)
        return
    taken = apart(receiver.recv_array)
    sender.send_array(array, pool)
    same(taken.result(), numpy.asarray(array))


def test_strided_arrays_of_no_pool_arrive_too(channel, pool):
    sender, receiver = channel
    table = numpy.arange(20000).reshape(100, 200)[::2, ::-3]
    for send, take in ((sender.send_object, receiver.recv_object), (sender.send_array, receiver.recv_array)):
        taken = apart(take)
        send(table, pool)
        same(taken.result(), table)
    assert table.base.flags.writeable


class Mine(numpy.ndarray):
    pass


def test_a_class_of_somebody_elses_stays_what_it_is(channel, pool):
    sender, receiver = channel
    taken = apart(receiver.recv_object)
    sender.send_object(numpy.arange(3000).view(Mine), pool)
    got = taken.result()
    assert type(got) is Mine and got.tolist() == list(range(3000))


def test_what_is_no_array_is_an_error(channel, pool):
    sender, receiver = channel
    sender.send(b"[]")
    with pytest.raises(tranship.BadArgument, match="2 bytes that send_array"):
        receiver.recv_array()
    objects = numpy.array([object()])
    with pytest.raises(TypeError, match="Python objects"):
        sender.send_array(objects, pool)


@pytest.mark.parametrize(
    "word",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"dtype": "O", "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": "f8", "shape": [3], "strides": [8], "offset": 0}',
        b'{"dtype": "f8", "shape": [1], "strides": [8], "offset": -8}',
        b'{"dtype": "f8", "shape": [-1], "strides": [8], "offset": 0}',
        b'{"dtype": "f8", "shape": [1, 1], "strides": [-8, 9223372036854775807], "offset": 8}',
        b'{"dtype": "f8", "shape": 1, "strides": [8], "offset": 0}',
        b'{"dtype": "no such type", "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": "finfo", "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": ["O"], "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": {"names": ["a"], "formats": ["O"], "offsets": [0], "itemsize": 8}, "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": {"names": ["a"], "formats": ["i8"], "offsets": [8], "itemsize": 8}, "shape": [1], "strides": [8], "offset": 0}',
        b'{"dtype": "f8", "shape": [1], "strides": [8], "offset": 0' + b"[" * 100_000,
    ],
)
def test_a_hostile_word_about_an_array_is_an_error(channel, pool, word):
    sender, receiver = channel
    from tranship import _objects

    got = apart(receiver.recv_array)
    sender.send([pool.copy(word), pool.copy(bytes(8))], _objects.ARRAY)
    with pytest.raises(tranship.BadArgument, match="array"):
        got.result()


def test_arrays_without_bytes_are_sent(channel, pool):
    for array in (pool.empty((0, 5)), pool.zeros(0, "i2"), pool.zeros(10)[3:3], numpy.empty(0), pool.empty(3, "V0")):
        assert len(sent(channel, array)) == 0
    assert len(sent(channel, [])) == 0
    assert len(sent(channel, ())) == 0
    got = sent(channel, [pool.empty((0, 5)), pool.copy(b"ab"), pool.empty(0)])
    assert [len(piece) for piece in got.pieces] == [0, 2, 0]
    assert [len(piece) for piece in sent(channel, [pool.empty(0), pool.empty(0)]).pieces] == [0, 0]
    assert numpy.frombuffer(got.pieces[0], "f8").shape == (0,)


def test_arrays_in_fortrans_order_and_of_any_type_are_sent_as_their_bytes(channel, pool):
    for kind in LARGE:
        array = inside(pool, KINDS[kind](100))
        # In the order in which they lie.
        want = array.tobytes("A")
        if kind == "turned":
            array = array.transpose(1, 0, 2)
        got = sent(channel, array)
        assert (len(got), got.id) == (array.nbytes, sent(channel, array).id)
        assert bytes(got) == want, kind
        assert not array.flags.writeable


def test_an_array_with_gaps_is_refused_with_advice(channel, pool):
    table = pool.zeros((10, 10))
    with pytest.raises(BufferError, match=r"gaps.*pool\.array.*send_array"):
        sent(channel, table[:, 1])
    assert table.flags.writeable


def test_numpy_says_what_is_wrong_with_a_buffer(channel, pool):
    buffer = pool.copy(b"ab")
    got = sent(channel, [pool.copy(b"a"), pool.copy(b"b")])
    for make in (numpy.asarray, numpy.array, numpy.asanyarray):
        with pytest.raises(BufferError, match="2 bytes lie in several pieces"):
            make(got)
        assert make(buffer).tolist() == [97, 98]
        assert make(buffer, dtype="u4").tolist() == [97, 98]
    with pytest.raises(ValueError, match="copy"):
        numpy.array(buffer, "u4", copy=False)
    buffer.release()
    for make in (numpy.asarray, numpy.array, numpy.asanyarray):
        with pytest.raises(ValueError, match="was released"):
            make(buffer)


def test_addresses_do_not_leave_the_process(channel, pool):
    sender, receiver = channel
    import ctypes

    word = ctypes.c_char_p(b"secret")
    mixed = numpy.zeros(3, [("O", "i4"), ("b", "O"), ("c", "M8[s]")])
    leaks = [numpy.array([1, "a"], object), mixed, (ctypes.py_object * 2)(1, 2), word, ctypes.pointer(ctypes.c_int(3))]
    for leak in leaks:
        for call in (pool.copy, sender.send, receiver.send_back):
            with pytest.raises(TypeError, match="addresses"):
                call(leak)
    fine = numpy.zeros(3, [("O", "i4"), ("P", "c16")])
    assert bytes(pool.copy(fine)) == fine.tobytes()
    for kind in LARGE:
        array = KINDS[kind](4)
        assert bytes(pool.copy(array)) == array.tobytes(), kind
    assert bytes(pool.copy((ctypes.c_int * 2)(1, 2))) == numpy.array([1, 2], "i4").tobytes()


def test_a_sent_array_stays_read_only(channel, pool):
    sender, _ = channel
    row, table = pool.zeros(2000), pool.zeros((20, 100), order="F")
    part = table[3:5]
    for array in (row, table):
        array.flags.writeable = False
        array.flags.writeable = True  # until it is sent
    sent(channel, row)
    sent(channel, table)
    for array in (row, table, part, row[3:], table.T, row.view("u1")):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        with pytest.raises(ValueError):
            array.setflags(write=True)


def test_the_memory_of_an_array_stays_with_it(pool):
    frees = pool.stats()["frees"]
    array = pool.zeros(1000, "u1")
    part = array[10:20]
    view = memoryview(part)
    del array, part
    assert pool.stats()["frees"] == frees
    assert bytes(view) == bytes(10)
    view.release()
    assert pool.stats()["frees"] == frees + 1


def test_an_unpickled_buffer_is_a_buffer_again(channel, pool):
    sender, receiver = channel
    for length in (30, 5000):
        data = bytes(range(256)) * (length // 256) + bytes(length % 256)
        buffer = pool.copy(data)
        taken = apart(receiver.recv_object)
        sender.send_object([buffer], pool)
        (got,) = taken.result()
        assert isinstance(got, tranship.Buffer) and got.readonly
        for again in (got, pickle.loads(pickle.dumps(buffer, 5))):
            for protocol in range(2, 6):
                again = pickle.loads(pickle.dumps(again, protocol))
                assert isinstance(again, tranship.Buffer) and bytes(again) == data
                assert again.readonly


def test_arrays_are_awaited(domain, other, pool):
    import asyncio

    from conftest import join

    sender, receiver = join(domain, other)
    want = KINDS["record"](300)

    async def main():
        taken = asyncio.create_task(receiver.recv_array_async())
        await sender.send_array_async(want, pool)
        same(await taken, want)

    asyncio.run(main())
