"""Exceptions: one class for each case that a program distinguishes, each also of a built-in class that programs know already.

`kind` and `code` name the kind of error, one for one with the table in docs/errors.md; the text has the numbers.
"""

from typing import Any

from ._native import KINDS, Buffer


class Error(Exception):
    """An operation was not done; the text says the reason, and what would be right."""

    kind: str = ""
    code: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # An OSError's number is no attribute of the dictionary.
        state = {**vars(self), "errno": self.errno} if isinstance(self, OSError) else vars(self)
        return type(self), self.args, state


class TimedOut(Error, TimeoutError):
    """The timeout is over."""


class Full(Error, BlockingIOError, TimeoutError):
    """The receiver did not make room, or did not agree to the pool, in the time given."""


class PeerGone(Error, BrokenPipeError):
    """The other end is closed."""


class PeerDied(Error, ConnectionResetError):
    """The other end died, or gave up: more messages may be missing."""


class PeerViolation(Error, ConnectionAbortedError):
    """The other end broke the protocol."""


class NoManager(Error, ConnectionRefusedError):
    """There is no manager that can be used."""


class ManagerAway(Error, ConnectionError):
    """The manager is gone: channels and pools that exist go on, and no new ones can be made."""


class OutOfMemory(Error, MemoryError):
    """There is no memory for it: now, or ever if it is more than the pool's maximum."""


class AccessDenied(Error, PermissionError):
    """Rules or the manager do not allow it."""


class NoSuchName(Error, FileNotFoundError):
    """Nothing is there under that name."""


class NameTaken(Error, FileExistsError):
    """The name is taken."""


class BadArgument(Error, ValueError):
    """An argument is outside its range, or not for this."""


class Forked(Error, RuntimeError):
    """The object is the parent's: a forked child connects a domain of its own."""


class SystemFailed(Error, OSError):
    """The system refused, or another error occurred that has no class of its own."""


class ServiceFailed(Error, RuntimeError):
    """A service answered with an error of its own. `answer` is the buffer that it sent."""

    answer: Buffer


_CLASSES: dict[str, type[Error]] = {
    "TimedOut": TimedOut,
    "Full": Full,
    "PoolPending": Full,
    "PeerGone": PeerGone,
    "PeerDied": PeerDied,
    "Lost": PeerDied,
    "PeerViolation": PeerViolation,
    "NoManager": NoManager,
    "Unreachable": NoManager,
    "ManagerAway": ManagerAway,
    "CutOff": ManagerAway,
    "NotConnected": ManagerAway,
    "ChunkPending": ManagerAway,
    "OutOfMemory": OutOfMemory,
    "TooLarge": OutOfMemory,
    "Quota": OutOfMemory,
    "Refused": AccessDenied,
    "Access": AccessDenied,
    "BufferNotOwned": AccessDenied,
    "NoSuchName": NoSuchName,
    "NameTaken": NameTaken,
    "BadArgument": BadArgument,
    "SameRole": BadArgument,
    "Stale": BadArgument,
    "BufferState": BadArgument,
    "ChannelTrust": BadArgument,
    "Forked": Forked,
}

_REFUSED = next(code for code, name, _errno, _meaning in KINDS if name == "Refused")
_KINDS = {code: (name, errno) for code, name, errno, _meaning in KINDS}


for _class in (Error, *Error.__subclasses__()):
    _class.__module__ = __package__  # as programs name them


def make(code: int, errno: int, text: str) -> Error:
    """The exception for an error of the library's."""
    name, _errno = _KINDS.get(code, ("System", errno))
    error = _CLASSES.get(name, SystemFailed)(text)
    error.kind = name
    error.code = code
    if isinstance(error, OSError):
        error.errno = errno
    return error


def failed(answer: Buffer, text: str) -> Error:
    """The exception for an error of a service's own."""
    error = ServiceFailed(text)
    error.kind, error.code, error.answer = "Refused", _REFUSED, answer
    return error


def of_kind(name: str, text: str) -> Error:
    """The exception of a kind, by its name."""
    code, errno = next((code, errno) for code, (known, errno) in _KINDS.items() if known == name)
    return make(code, errno, text)


__all__ = [
    "AccessDenied",
    "BadArgument",
    "Error",
    "Forked",
    "Full",
    "ManagerAway",
    "NameTaken",
    "NoManager",
    "NoSuchName",
    "OutOfMemory",
    "PeerDied",
    "PeerGone",
    "PeerViolation",
    "ServiceFailed",
    "SystemFailed",
    "TimedOut",
]
