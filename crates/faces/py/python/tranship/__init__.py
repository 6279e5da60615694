"""Moves large data between isolated processes without copying it.

A process joins a manager (`connect`), makes pools, allocates buffers in them, and sends them over channels. A received buffer is
the sender's memory, read-only: no byte is copied.
"""

from __future__ import annotations

import os as _os
from typing import Any as _Any

from . import _native
from ._errors import (
    AccessDenied,
    BadArgument,
    Error,
    Forked,
    Full,
    ManagerAway,
    NameTaken,
    NoManager,
    NoSuchName,
    OutOfMemory,
    PeerDied,
    PeerGone,
    PeerViolation,
    ServiceFailed,
    SystemFailed,
    TimedOut,
)
from ._native import (
    INLINE_BYTES,
    Buffer,
    Call,
    Client,
    Consumer,
    Domain,
    Item,
    Listener,
    Pool,
    Producer,
    Publisher,
    Receiver,
    Request,
    Sender,
    Service,
    Subscriber,
    __version__,
)
from ._program import program as _program_of_the_package
from ._top import top
from ._typed import message_type, pack, unpack
from ._wait import wait

__all__ = [
    "AccessDenied",
    "BadArgument",
    "Broadcast",
    "Buffer",
    "Call",
    "Client",
    "Consumer",
    "Domain",
    "Error",
    "Executor",
    "Forked",
    "Full",
    "INLINE_BYTES",
    "Item",
    "Listener",
    "ManagerAway",
    "NameTaken",
    "NoManager",
    "NoSuchName",
    "OutOfMemory",
    "PeerDied",
    "PeerGone",
    "PeerViolation",
    "Pool",
    "Producer",
    "Publisher",
    "Receiver",
    "Request",
    "Sender",
    "Service",
    "ServiceFailed",
    "Store",
    "Subscriber",
    "SystemFailed",
    "TimedOut",
    "__version__",
    "connect",
    "embedded",
    "message_type",
    "pack",
    "top",
    "unpack",
    "wait",
]

def __getattr__(name: str) -> _Any:
    """Returns what is imported at its first use: it needs multiprocessing."""
    if name == "Broadcast":
        from ._broadcast import Broadcast

        return Broadcast
    if name == "Store":
        from ._store import Store

        return Store
    if name == "Executor":
        from .mp import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


message_type.__module__ = pack.__module__ = unpack.__module__ = wait.__module__ = __name__


def connect(
    name: str | None = None,
    *,
    socket: str | _os.PathLike[str] | None = None,
    autostart: bool = True,
    helper_thread: bool = False,
    non_dumpable: bool = False,
    manager_timeout: float = 10,
) -> Domain:
    """Joins the manager: the one at `socket` (or $TRANSHIP_SOCKET), else the system's, else the user's, else one that it starts.
    A call that only asks a hanging manager raises TimedOut after `manager_timeout` seconds. `NoManager`: there is none, and none can be started.

    >>> import tranship
    >>> with tranship.embedded("first") as first, tranship.connect("second", socket=first.socket_path) as second:
    ...     second.id != first.id
    True
    """
    return _native.connect(
        {
            "name": name,
            "socket": None if socket is None else _os.fspath(socket),
            "autostart": autostart,
            "program": _program_of_the_package() if autostart else None,
            "helper_thread": helper_thread,
            "non_dumpable": non_dumpable,
            "manager_timeout": manager_timeout,
        }
    )


def embedded(
    name: str | None = None,
    *,
    socket: str | _os.PathLike[str] | None = None,
    helper_thread: bool = False,
    non_dumpable: bool = False,
    manager_timeout: float = 10,
) -> Domain:
    """Runs a manager in this process, and joins it. Other processes join by `Domain.socket_path`.

    >>> import tranship
    >>> with tranship.embedded("alone") as domain:
    ...     domain.pool("bytes", 1 << 20).copy(b"four").nbytes
    4
    """
    return _native.embedded(
        {
            "name": name,
            "socket": None if socket is None else _os.fspath(socket),
            "autostart": False,
            "program": None,
            "helper_thread": helper_thread,
            "non_dumpable": non_dumpable,
            "manager_timeout": manager_timeout,
        }
    )
