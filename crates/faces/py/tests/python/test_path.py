"""The path of a message, in one process and between two."""

import os
import re

import numpy
import pytest
from conftest import apart, join

import tranship


def test_a_message_goes_through(channel, pool):
    sender, receiver = channel
    buffer = pool.alloc(5)
    with memoryview(buffer) as view:
        view[:] = b"hello"
    first = apart(receiver.recv)  # the first send from a pool needs the receiver's consent
    sender.send(buffer, 7)
    got = first.result()
    assert (bytes(got), got.word, len(got), got.readonly) == (b"hello", 7, 5, True)
    assert receiver.try_recv() is None
    assert buffer.readonly and bytes(buffer) == b"hello"


PAGES = """
receiver = domain.open('images', tranship.Receiver)
image = numpy.asarray(receiver.recv())
address = image.__array_interface__['data'][0]
say(place(address))
hear()
"""

PLACE = """
def place(address):
    for line in open('/proc/self/maps'):
        span, _, offset, _, inode = line.split()[:5]
        start, end = (int(part, 16) for part in span.split('-'))
        if start <= address < end:
            return f'{inode} {address - start + int(offset, 16)}'
"""


def test_an_array_arrives_without_a_copy_in_another_process(domain, pool, peer):
    names = {}
    exec(PLACE, names)
    reader = peer(PLACE + PAGES)
    with domain.listen("images", tranship.Sender) as listener, listener.accept() as sender:
        image = pool.empty((512, 512, 3), numpy.uint8)
        image[:] = 9
        sender.send(image)
        here = names["place"](image.__array_interface__["data"][0])
        # The same bytes of the same file are behind both addresses.
        assert reader.hear() == here
        reader.say("done")
        assert reader.end() == 0


def test_inline_messages_need_no_pool(channel):
    sender, receiver = channel
    sender.send(b"x" * tranship.INLINE_BYTES, 3)
    got = receiver.recv()
    assert (bytes(memoryview(got)), got.word, got.unique) == (b"x" * tranship.INLINE_BYTES, 3, True)
    with pytest.raises(tranship.OutOfMemory, match="41") as long:
        sender.send(b"x" * 41)
    assert long.value.kind == "TooLarge"


def test_a_channel_has_a_pool_of_its_own(channel):
    sender, receiver = channel
    first = apart(receiver.recv)
    buffer = sender.alloc(5)
    memoryview(buffer)[:] = b"hello"
    sender.send(buffer)
    assert bytes(first.result()) == b"hello"
    sender.send(sender.alloc(3, timeout=120), 7, move=True)
    assert (receiver.recv().word, len(buffer)) == (7, 5)


def test_a_list_is_one_message_in_pieces(channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    sender.send([pool.copy(b"head"), pool.copy(b"body").slice(1, 3)])
    got = first.result()
    assert (len(got), bytes(got), got.tobytes()) == (6, b"headod", b"headod")
    assert [bytes(piece) for piece in got.pieces] == [b"head", b"od"]
    with pytest.raises(BufferError, match="6 bytes lie in several pieces"):
        memoryview(got)


def test_iteration_ends_when_the_sender_closes(channel):
    sender, receiver = channel
    for number in range(3):
        sender.send(b"%d" % number)
    sender.close()
    assert [bytes(message) for message in receiver] == [b"0", b"1", b"2"]
    with pytest.raises(BrokenPipeError):
        receiver.recv()


def test_an_exception_in_a_senders_with_says_that_it_was_not_all(domain, other):
    sender, receiver = join(domain, other)
    with pytest.raises(KeyError), sender:
        sender.send(b"half")
        raise KeyError
    assert bytes(receiver.recv()) == b"half"
    with pytest.raises(ConnectionResetError):
        receiver.recv()
    with pytest.raises(tranship.PeerDied):
        next(receiver)


def test_a_sender_that_is_dropped_has_not_said_that_it_was_all(domain, other):
    sender, receiver = join(domain, other)
    sender.send(b"half")
    del sender
    assert bytes(receiver.recv()) == b"half"
    with pytest.raises(tranship.PeerDied):
        receiver.recv()


def test_a_buffer_moves_there_and_back(domain, other):
    sender, receiver = join(domain, other)
    pool = domain.pool("moved", 1 << 20, trust="full")
    buffer = pool.copy(b"mine")
    moved = apart(receiver.recv)
    with memoryview(buffer), pytest.raises(BufferError, match="1 view"):
        sender.send(buffer, move=True)
    sender.send(buffer, move=True)
    assert buffer.released
    with pytest.raises(ValueError, match="moved"):
        memoryview(buffer)
    got = moved.result()
    assert not got.readonly
    with memoryview(got) as view:
        view[:] = b"ours"
    receiver.send_back(got, 5)
    back = sender.try_recv_back()
    assert (bytes(back), back.word, back.readonly) == (b"ours", 5, True)


def test_a_release_is_told(channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    sent = pool.copy(b"once")
    sender.send(sent, 1)
    got = first.result()
    with memoryview(got), pytest.raises(BufferError, match="1 view"):
        receiver.send_back(got, 2, released=True)
    assert not got.released and sender.try_recv_back() is None
    receiver.send_back(got, 2, released=True)
    said = sender.try_recv_back()
    assert (said.is_release, said.id, said.word, len(said), bytes(said)) == (True, sent.id, 2, 0, b"")
    assert got.released and not sent.is_release and "released" in repr(said)
    with pytest.raises(ValueError, match="released"):
        receiver.send_back(got, released=True)
    # A list and a few bytes have no name, but are told as well.
    sender.send([pool.copy(b"a"), pool.copy(b"b")])
    sender.send(b"few")
    for word in (3, 4):
        receiver.send_back(receiver.recv(), word, released=True)
        said = sender.try_recv_back()
        assert (said.is_release, said.id, said.word) == (True, None, word)


def test_a_buffer_that_came_by_no_channel_is_not_released_by_one(channel, domain):
    sender, receiver = channel
    buffer = domain.pool("another", 1 << 20).copy(b"mine")
    with pytest.raises(tranship.Error):
        receiver.send_back(buffer, released=True)
    assert bytes(buffer) == b"mine" and not buffer.released
    receiver.close()
    with pytest.raises(ValueError, match="closed"):
        receiver.send_back(buffer, released=True)
    assert bytes(buffer) == b"mine"


def test_what_was_shared_is_not_moved(channel, pool):
    sender, _ = channel
    buffer = pool.alloc(10)
    buffer.freeze()
    with pytest.raises(ValueError, match="shared"):
        sender.send(buffer, move=True)
    assert not buffer.released


def test_a_receiver_answers_with_a_few_bytes(channel):
    sender, receiver = channel
    assert sender.try_recv_back() is None
    receiver.send_back(b"ack", 9)
    assert bytes(sender.try_recv_back()) == b"ack"


def test_room_for_what_goes_back_is_waited_for(channel, pool):
    sender, receiver = channel
    got = []
    for data in (b"back", b"done"):
        moved = apart(receiver.recv)
        sender.send(pool.copy(data), move=True)
        got.append(moved.result())
    full = 0
    with pytest.raises(tranship.Full):
        while True:
            receiver.send_back(b"word")
            full += 1
    with pytest.raises(tranship.Full) as late:
        receiver.send_back(b"word", timeout=0.02)
    assert int(re.search(r"waited (\d+) ms", str(late.value))[1]) >= 20
    for released in (False, True):
        with pytest.raises(tranship.Full):
            receiver.send_back(got[0], timeout=0.01, released=released)
        assert not got[0].released

    def answer():
        receiver.send_back(got[0], 1, timeout=None)
        receiver.send_back(got[1], 2, timeout=1000, released=True)
        receiver.send_back(b"last", 3, timeout=None)

    answers = apart(answer)
    assert {sender.recv_back().word for _ in range(full)} == {0}
    assert [bytes(sender.recv_back()) for _ in range(3)] == [b"back", b"", b"last"]
    answers.result()
    with pytest.raises(ValueError, match="from 0 on"):
        receiver.send_back(b"word", timeout=-1)


def test_an_answer_is_waited_for(channel):
    sender, receiver = channel
    with pytest.raises(TimeoutError):
        sender.recv_back(timeout=0.01)
    answer = apart(sender.recv_back)
    receiver.send_back(b"ack", 9)
    assert (bytes(answer.result()), sender.try_recv_back()) == (b"ack", None)
    receiver.send_back(b"last")
    receiver.close()
    assert bytes(sender.recv_back()) == b"last"
    with pytest.raises(tranship.PeerGone):
        sender.recv_back()
    sender.close()
    with pytest.raises(ValueError, match="closed"):
        sender.recv_back()


def test_taken_is_told(channel):
    sender, receiver = channel
    sender.send(b"x")
    assert sender.queued == 1
    with pytest.raises(TimeoutError):
        sender.wait_taken(timeout=0.03)
    receiver.recv()
    sender.wait_taken()
    assert sender.queued == 0


def test_a_listener_hears_of_receivers_and_senders(domain, other):
    with domain.listen("in", tranship.Receiver) as listener:
        opened = apart(other.open, "in", tranship.Sender)
        receiver = listener.accept()
        sender = opened.result()
        assert isinstance(receiver, tranship.Receiver) and isinstance(sender, tranship.Sender)
        assert receiver.peer == other.id and sender.peer_pid == os.getpid()
        with pytest.raises(TimeoutError):
            listener.accept(timeout=0.03)
    with pytest.raises(ValueError, match="closed"):
        listener.accept()


def test_stat_tells_who_is_there(domain, other, channel, pool):
    sender, receiver = channel
    first = apart(receiver.recv)
    sender.send(pool.alloc(100))
    held = first.result()
    stat = domain.admin().stat()
    assert {record["domain"] for record in stat["domains"]} >= {domain.id, other.id}
    assert [record["name"] for record in stat["pools"]] == ["pool"]
    assert stat["channels"][0]["source"] == domain.id
    assert stat["manager"]["pid"] == os.getpid()
    assert pool.stats()["allocs"] >= 1
    assert len(held) == 100


def test_closed_things_say_so(domain, other):
    sender, receiver = join(domain, other)
    with sender, receiver:
        pass
    for call in (lambda: sender.send(b""), receiver.recv, receiver.try_recv):
        with pytest.raises(ValueError, match="closed"):
            call()
    sender.close()  # again does nothing
    pool = domain.pool("p", 1 << 20)
    pool.close()
    with pytest.raises(ValueError, match="the pool is closed"):
        pool.alloc(1)
