"""The text of a message type, which both ends of a channel compare."""

from __future__ import annotations

import ctypes
from typing import Any, Iterator

_SIGNED, _UNSIGNED = "bhilq", "BHILQ"


def message_type(message: type[Any] | None, items: type[Any] | None = None) -> str:
    """The text of a `ctypes.Structure` as the type of a channel's messages, for `listen` and `open`.

    Rust's `#[derive(Message)]` makes the same text of the same struct. `items` is the type of the items behind a message, if there may
    be any; `message` None stands for items alone."""
    name, size, align = ("()", 0, 1) if message is None else (_name(message), *_shape(message))
    if items is None:
        lines = [f"{name}: {size} bytes, aligned to {align}"]
    else:
        each, item_align = _shape(items)
        first = -(-size // item_align) * item_align
        lines = [
            f"{name} + [{_name(items)}]: {size} bytes, then items of {each} bytes from {first} on, "
            f"aligned to {max(align, item_align)}"
        ]
    lines += [] if message is None else _fields(message, "", 0)
    lines += [] if items is None else _fields(items, "[].", 0)
    return "".join(line + "\n" for line in lines)


def _shape(kind: Any) -> tuple[int, int]:
    return ctypes.sizeof(kind), ctypes.alignment(kind)


def _name(kind: Any) -> str:
    if issubclass(kind, ctypes.Array):
        return f"[{_name(kind._type_)}; {kind._length_}]"
    if issubclass(kind, ctypes.Structure) and not hasattr(kind, "_swappedbytes_"):
        return str(kind.__name__)
    code = getattr(kind, "_type_", None)
    if not hasattr(kind, "contents") and isinstance(code, str) and not hasattr(kind, "_swappedbytes_"):
        bits = 8 * ctypes.sizeof(kind)
        known = {"?": "bool", "c": "u8", "f": "f32", "d": "f64"}
        known |= dict.fromkeys(_SIGNED, f"i{bits}") | dict.fromkeys(_UNSIGNED, f"u{bits}")
        if code in known:
            return known[code]
    raise TypeError(f"{kind!r} is no message: known are ctypes' integers, floats, bool, arrays and structures")


def _fields(kind: Any, path: str, base: int) -> Iterator[str]:
    if issubclass(kind, ctypes.Array):
        yield from _fields(kind._type_, path.rstrip(".") + "[].", 0)
    elif issubclass(kind, ctypes.Structure):
        for name, field, *bits in kind._fields_:
            if bits:
                raise TypeError(f"{path}{name} has {bits[0]} bits: a message's fields are whole")
            offset = base + getattr(kind, name).offset
            yield f"{path}{name}: {_name(field)} at {offset}"
            yield from _fields(field, f"{path}{name}.", offset)
