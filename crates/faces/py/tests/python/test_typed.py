"""The types of messages: their text is Rust's, and another one is refused."""

import ctypes
import dataclasses
import threading

import pytest

import tranship


class Pose(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_double)]


class Frame(ctypes.Structure):
    _fields_ = [
        ("taken_ns", ctypes.c_uint64),
        ("pose", Pose),
        ("corners", Pose * 2),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
    ]


def test_the_text_is_that_of_rust():
    # As in crates/core/typed/tests/all/types.rs.
    assert tranship.message_type(Frame) == (
        "Frame: 64 bytes, aligned to 8\n"
        "taken_ns: u64 at 0\n"
        "pose: Pose at 8\n"
        "pose.x: f64 at 8\n"
        "pose.y: f64 at 16\n"
        "corners: [Pose; 2] at 24\n"
        "corners[].x: f64 at 0\n"
        "corners[].y: f64 at 8\n"
        "width: u32 at 56\n"
        "height: u32 at 60\n"
    )
    assert tranship.message_type(ctypes.c_uint8 * 3) == "[u8; 3]: 3 bytes, aligned to 1\n"
    assert tranship.message_type(ctypes.c_uint32, Pose) == (
        "u32 + [Pose]: 4 bytes, then items of 16 bytes from 8 on, aligned to 8\n[].x: f64 at 0\n[].y: f64 at 8\n"
    )
    assert tranship.message_type(None, ctypes.c_int16) == (
        "() + [i16]: 0 bytes, then items of 2 bytes from 0 on, aligned to 2\n"
    )


@dataclasses.dataclass
class Point:
    x: float
    y: ctypes.c_uint16


@dataclasses.dataclass
class Seen:
    number: int
    corner: Point
    is_good: bool
    marks: ctypes.c_uint8 * 3


def test_a_dataclass_and_a_dtype_are_structs_too():
    text = (
        "Seen: 32 bytes, aligned to 8\nnumber: i64 at 0\ncorner: Point at 8\ncorner.x: f64 at 8\ncorner.y: u16 at 16\n"
        "is_good: bool at 24\nmarks: [u8; 3] at 25\n"
    )
    assert tranship.message_type(Seen) == text
    seen = Seen(-7, Point(2.5, 9), True, [1, 2, 3])
    assert len(tranship.pack(seen)) == 32
    assert tranship.unpack(Seen, tranship.pack(seen)) == seen
    with pytest.raises(ValueError, match="a message of 3 bytes: a Seen has 32"):
        tranship.unpack(Seen, b"abc")
    numpy = pytest.importorskip("numpy")
    frame = numpy.dtype([("taken_ns", numpy.uint64), ("width", numpy.uint32)], align=True)
    assert tranship.message_type(frame, name="Frame") == "Frame: 16 bytes, aligned to 8\ntaken_ns: u64 at 0\nwidth: u32 at 8\n"
    with pytest.raises(TypeError, match="no name of its own"):
        tranship.message_type(frame)
    with pytest.raises(TypeError, match="Frame.taken_ns is at 1, and C has it at 8: make the dtype with align=True"):
        tranship.message_type(numpy.dtype([("kind", numpy.uint8), ("taken_ns", numpy.uint64)]), name="Frame")


@pytest.mark.parametrize("kind", [ctypes.c_void_p, ctypes.POINTER(Pose), ctypes.c_wchar, str])
def test_what_is_no_message_is_refused(kind):
    with pytest.raises(TypeError):
        tranship.message_type(kind)


def test_ends_of_different_types_refuse_each_other(domain):
    class Later(ctypes.Structure):
        _fields_ = [("taken_ns", ctypes.c_uint64), ("width", ctypes.c_uint64)]

    class Frame(ctypes.Structure):
        _fields_ = [("taken_ns", ctypes.c_uint64), ("width", ctypes.c_uint32), ("height", ctypes.c_uint32)]

    Later.__name__ = "Frame"
    listener = domain.listen("local:typed", tranship.Sender, message_type=tranship.message_type(Frame))
    with pytest.raises(tranship.Error, match="`width: u64 at 8` here, `width: u32 at 8` there"):
        domain.open("local:typed", tranship.Receiver, message_type=tranship.message_type(Later))
    with pytest.raises(tranship.Error, match="bytes without a type here"):
        domain.open("local:typed", tranship.Receiver)
    opened = []
    opening = threading.Thread(
        target=lambda: opened.append(
            domain.open("local:typed", tranship.Receiver, message_type=tranship.message_type(Frame))
        )
    )
    opening.start()
    sender = listener.accept()
    opening.join()
    sender.send(Frame(7, 640, 480))
    frame = Frame.from_buffer_copy(opened[0].recv())
    assert (frame.taken_ns, frame.width, frame.height) == (7, 640, 480)


def test_a_topic_of_another_type_is_refused_and_the_field_named(domain):
    @dataclasses.dataclass
    class Frame:
        taken_ns: ctypes.c_uint64
        width: ctypes.c_uint32

    later = dataclasses.make_dataclass("Frame", [("taken_ns", ctypes.c_uint64), ("height", ctypes.c_uint32)])
    with domain.publish("typed", message_type=tranship.message_type(Frame), history=1) as publisher:
        publisher.send(tranship.pack(Frame(7, 640)))
        with tranship.connect("viewer", socket=domain.socket_path) as viewer:
            with viewer.subscribe("typed", message_type=tranship.message_type(later)) as other:
                with pytest.raises(tranship.Error, match="`height: u32 at 8` here, `width: u32 at 8` there") as refused:
                    other.recv()
                assert refused.value.kind == "ChannelBind"
            with viewer.subscribe("typed") as other:
                with pytest.raises(tranship.Error, match="bytes without a type here"):
                    other.recv()
            with viewer.subscribe("typed", message_type=tranship.message_type(Frame)) as same:
                assert tranship.unpack(Frame, same.recv()) == Frame(7, 640)
