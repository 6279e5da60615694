"""The text of a message type, which both ends of a channel compare."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from functools import cache
from typing import Any, Iterator, TypeVar, get_type_hints

_T = TypeVar("_T")

_SIGNED, _UNSIGNED = "bhilq", "BHILQ"


def message_type(message: Any, items: Any = None, *, name: str | None = None) -> str:
    """The text of a type of messages, for `listen`, `open`, `serve` and `client`: of a `ctypes.Structure`, a dataclass, or a structured
    numpy dtype (with `align=True`, as C lays it out).

    Rust's `#[derive(Message)]` makes the same text of the same struct. `name` is the struct's name where it is not the class's; a dtype
    has none of its own. `items` is the type of the items behind a message, if there may be any; `message` None stands for items
    alone. `TypeError`: a field is no number, array or structure, or a dtype has other offsets than C.

    >>> import ctypes, tranship
    >>> print(tranship.message_type(ctypes.c_uint8 * 3), end="")
    [u8; 3]: 3 bytes, aligned to 1
    """
    message, items = None if message is None else structure(message, name), None if items is None else structure(items)
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


def structure(kind: Any, name: str | None = None) -> Any:
    """The `ctypes` type with the layout of a dataclass or a numpy dtype; other types are as they are."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        made: Any = _of_dataclass(kind)
    elif "numpy" in sys.modules and isinstance(kind, sys.modules["numpy"].dtype):
        made = _of_dtype(kind, name)
    else:
        made = kind
    return made if name is None else type(name, (made,), {})


def _of_dtype(kind: Any, name: str | None) -> Any:
    if kind.names is None:
        return sys.modules["numpy"].ctypeslib.as_ctypes_type(kind)
    if name is None:
        raise TypeError(f"{kind} has no name of its own: give message_type() one, by name=")
    parts = [(field, *kind.fields[field][:2]) for field in kind.names]
    fields = [(field, _of_dtype(part, f"{name}_{field}")) for field, part, _at in parts]
    made: Any = type(name, (ctypes.Structure,), {"_fields_": fields})
    for field, _part, at in parts:
        if getattr(made, field).offset != at:
            raise TypeError(f"{name}.{field} is at {at}, and C has it at {getattr(made, field).offset}: make the dtype with align=True")
    return made


@cache
def _of_dataclass(kind: type[Any]) -> Any:
    hints = get_type_hints(kind)
    fields = [(field.name, _of_hint(hints[field.name])) for field in dataclasses.fields(kind)]
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": fields})


_PLAIN: dict[Any, Any] = {bool: ctypes.c_bool, int: ctypes.c_int64, float: ctypes.c_double}


def _of_hint(hint: Any) -> Any:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if "numpy" in sys.modules and isinstance(hint, type) and issubclass(hint, sys.modules["numpy"].generic):
        return sys.modules["numpy"].ctypeslib.as_ctypes_type(hint)
    return structure(hint)


def pack(value: Any) -> bytes:
    """The bytes of a dataclass's value, as a message of its `message_type`.

    >>> import dataclasses, tranship
    >>> Pose = dataclasses.make_dataclass("Pose", [("x", float), ("y", float)])
    >>> len(tranship.pack(Pose(1.0, 2.0)))
    16
    """
    kind = _of_dataclass(type(value))  # type: ignore[arg-type]
    return bytes(_filled(kind, value))


def _filled(kind: Any, value: Any) -> Any:
    parts = ((name, field, getattr(value, name)) for name, field, *_ in kind._fields_)
    return kind(*(_filled(field, part) if dataclasses.is_dataclass(part) else _plain(field, part) for _name, field, part in parts))


def _plain(field: Any, part: Any) -> Any:
    if issubclass(field, ctypes.Array):
        return field(*part)
    return part.item() if hasattr(part, "item") else part


def unpack(kind: type[_T], message: Any) -> _T:
    """A dataclass's value out of a message: a copy. A message of another length is a ValueError.

    >>> import dataclasses, tranship
    >>> Pose = dataclasses.make_dataclass("Pose", [("x", float), ("y", float)])
    >>> tranship.unpack(Pose, tranship.pack(Pose(1.0, 2.0)))
    Pose(x=1.0, y=2.0)
    """
    shape = _of_dataclass(kind)  # type: ignore[arg-type]
    data = bytes(message)
    if len(data) != ctypes.sizeof(shape):
        raise ValueError(f"a message of {len(data)} bytes: a {kind.__name__} has {ctypes.sizeof(shape)}")
    return _value(kind, shape.from_buffer_copy(data))


def _value(kind: type[_T], of: Any) -> _T:
    hints = get_type_hints(kind)

    def part(name: str) -> Any:
        value, hint = getattr(of, name), hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return _value(hint, value)
        if isinstance(value, ctypes.Array):
            return list(value)
        return hint(value) if hint not in _PLAIN and not hasattr(hint, "_type_") else value

    return kind(**{field.name: part(field.name) for field in dataclasses.fields(kind)})  # type: ignore[arg-type]
