"""The types of messages: their text is Rust's, and another one is refused."""

import ctypes
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
    # As in crates/core/typed/tests/types.rs.
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


@pytest.mark.parametrize("kind", [ctypes.c_void_p, ctypes.POINTER(Pose), ctypes.c_wchar, int])
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
