"""Views are counted; what is sent does not change; the memory stays as long as somebody looks at it."""

import gc
import struct

import numpy
import pytest
from conftest import apart

import tranship


def test_releasing_with_views_is_an_error_and_dropping_waits_for_them(pool):
    buffer = pool.alloc(100)
    view = memoryview(buffer)
    part = view[10:20]
    with pytest.raises(BufferError, match="100 bytes has 1 view:"):
        buffer.release()
    assert buffer.exports == 1
    view[:] = bytes(range(100))
    frees = pool.stats()["frees"]
    del buffer, view
    gc.collect()
    assert bytes(part) == bytes(range(10, 20))
    assert pool.stats()["frees"] == frees
    part.release()
    assert pool.stats()["frees"] == frees + 1


def test_release_gives_the_memory_back_at_once(pool):
    with pool.alloc(100) as buffer:
        frees = pool.stats()["frees"]
    assert pool.stats()["frees"] == frees + 1
    assert buffer.released and len(buffer) == 0
    buffer.release()
    with pytest.raises(ValueError, match="was released"):
        memoryview(buffer)


def test_leaving_with_views_is_an_error_unless_there_is_one_already(pool):
    with pytest.raises(BufferError), pool.alloc(8) as buffer:
        view = memoryview(buffer)
    view.release()
    with pytest.raises(KeyError), pool.alloc(8) as buffer:
        view = memoryview(buffer)
        raise KeyError
    assert not buffer.released


def test_it_is_writable_until_it_is_frozen(pool):
    buffer = pool.alloc(4)
    assert not buffer.readonly and buffer.unique
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="1 writable view"):
        buffer.freeze()
    view.release()
    buffer.freeze()
    assert buffer.readonly and memoryview(buffer).readonly
    with pytest.raises(TypeError):
        memoryview(buffer)[0] = 1
    with pytest.raises(TypeError, match="read-write"):
        struct.pack_into("I", buffer, 0, 1)


def test_what_is_sent_has_no_writable_views(channel, pool):
    sender, receiver = channel
    buffer = pool.alloc(4)
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="must not change"):
        sender.send(buffer)
    with pytest.raises(BufferError, match="1 writable view"):
        sender.send(view)
    assert not buffer.readonly
    view.release()
    first = apart(receiver.recv)
    sender.send(buffer)
    assert first.result().readonly


def test_repr_tells_size_holders_trust_and_views(channel, pool):
    sender, receiver = channel
    buffer = pool.alloc(4096)
    assert "of 4096 bytes, writable, held only here, trust producer" in repr(buffer)
    view = memoryview(buffer)
    assert repr(buffer).endswith(", 1 view>")
    view.release()
    first = apart(receiver.recv)
    sender.send(buffer)
    got = first.result()
    assert "read-only, shared, trust producer, from process" in repr(got)
    got.release()
    assert repr(got) == "<tranship.Buffer, was released>"


def test_parts_share_the_memory(pool):
    buffer = pool.copy(b"0123456789")
    part = buffer.slice(2, 5)
    assert bytes(part) == b"234" and buffer.readonly
    with pytest.raises(IndexError, match="bytes 5 to 11 of a buffer of 10 bytes"):
        buffer.slice(5, 11)
    del buffer
    assert bytes(part) == b"234"


def test_a_buffer_is_shortened(pool):
    buffer = pool.alloc(100)
    buffer.truncate(10)
    assert len(buffer) == len(memoryview(buffer)) == 10


def test_copying_takes_whatever_has_bytes(pool):
    assert bytes(pool.copy(bytearray(b"abc"))) == b"abc"
    assert bytes(pool.copy(memoryview(b"abcdef")[::2])) == b"ace"
    big = bytes(range(256)) * 4096
    assert bytes(pool.copy(big)) == big
    assert len(pool.copy(b"")) == 0
    with pytest.raises(TypeError):
        pool.copy(17)


def test_what_is_in_no_pool_is_refused_with_advice(channel):
    sender, _ = channel
    with pytest.raises(TypeError, match=r"bytes is not in a pool.*copy"):
        sender.send([b"abc"])
    with pytest.raises(tranship.OutOfMemory, match=r"1000 bytes are too many.*copy"):
        sender.send(bytes(1000))


def test_errors_are_built_in_ones_with_kind_code_and_numbers(domain, channel, pool):
    sender, receiver = channel
    with pytest.raises(TimeoutError, match=r"after \d+ ms") as caught:
        receiver.recv(timeout=0)
    error = caught.value
    assert isinstance(error, tranship.Error) and isinstance(error, tranship.TimedOut)
    assert (error.kind, error.code) == ("TimedOut", 5)
    with pytest.raises(MemoryError, match=str(32 << 20)) as caught:
        pool.alloc(32 << 20)
    assert caught.value.kind == "TooLarge"
    with pytest.raises(ValueError, match="65"):
        domain.pool("x" * 65, 1 << 20)
    with pytest.raises(TypeError, match="sideways"):
        domain.listen("x", "sideways")
    with pytest.raises(FileExistsError), domain.listen("twice", tranship.Sender):
        domain.listen("twice", tranship.Sender)
    with pytest.raises(ValueError, match="timeout"):
        receiver.recv(timeout=-1)
    with pytest.raises(ConnectionRefusedError) as caught:
        tranship.connect(socket="/nonexistent/socket")
    assert caught.value.errno


def test_a_full_channel_is_an_error_when_the_time_is_over(channel):
    sender, _ = channel
    for _ in range(256):
        sender.send(b"")
    with pytest.raises(BlockingIOError, match="256") as caught:
        sender.send(b"", timeout=0)
    assert caught.value.kind == "Full" and isinstance(caught.value, TimeoutError)
    with pytest.raises(tranship.Full):
        sender.send(b"", timeout=0.05)


def test_memory_comes_back_when_the_receiver_lets_go(domain, channel):
    sender, receiver = channel
    with domain.pool("small", 1 << 20, chunk_bytes=1 << 16) as pool:
        first = apart(receiver.recv)
        buffer = pool.alloc(1 << 20)
        sender.send(buffer)
        got = first.result()
        del buffer
        with pytest.raises(MemoryError):
            pool.alloc(1 << 20, timeout=0.03)
        again = apart(pool.alloc, 1 << 20)
        got.release()
        assert len(again.result()) == 1 << 20


def test_every_kind_has_a_class():
    from tranship import _errors, _native

    for code, name, errno, meaning in _native.KINDS:
        error = _errors.make(code, errno, meaning)
        assert (error.kind, error.code, str(error)) == (name, code, meaning)


def test_a_large_buffer_that_nobody_trusts_is_not_copied(domain, other):
    sealed = domain.pool("sealed", 1 << 20, trust="none", chunk_bytes=1 << 16, seal_from=30_000)
    copies = other.pool("copies", 1 << 20)
    with domain.listen("x", tranship.Sender) as listener:
        opened = apart(other.open, "x", tranship.Receiver, snapshots=copies)
        sender = listener.accept()
    receiver = opened.result()
    # Its pages cannot be written once it is sent, so no array may be left that could.
    array = sealed.empty(40_000, numpy.uint8)
    with pytest.raises(BufferError, match="sealed for everybody"):
        sender.send(array)
    array[:] = 1
    buffer = sealed.alloc(40_000)
    with memoryview(buffer) as view:
        view[:] = b"x" * 40_000
    first = apart(receiver.recv)
    sender.send(buffer)
    got = first.result()
    assert got.id == buffer.id and bytes(got) == b"x" * 40_000
    # A smaller buffer is copied.
    small = sealed.copy(b"y" * 1000)
    sender.send(small)
    got = receiver.recv()
    assert got.id != small.id and bytes(got) == b"y" * 1000
