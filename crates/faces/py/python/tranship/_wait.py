"""Waiting for several things at once."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable
from typing import Any, TypeVar

_Waited = TypeVar("_Waited")


def _is_ready(thing: object) -> bool:
    """Descriptors of channels tell of more than messages."""
    look = getattr(thing, "_is_ready", None)
    return look is None or bool(look())


def wait(things: Iterable[_Waited], timeout: float | None = None) -> list[_Waited]:
    """Waits until at least one of these is ready, and returns all that are, in their order; none when `timeout` seconds are over.

    A receiver is ready when there is a message or the end, a listener when somebody has connected, a sender when something has come back.
    Sockets, pipes, domains and descriptors are ready when they are readable. Ctrl-C ends the wait. `ValueError`: a timeout below 0.

    >>> import socket, tranship
    >>> here, there = socket.socketpair()
    >>> tranship.wait([here], timeout=0)
    []
    >>> there.send(b"word")
    4
    >>> tranship.wait([here]) == [here]
    True
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"a timeout of {timeout} s: it is None, or from 0 on")
    deadline = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        all = list(things)
        for place, thing in enumerate(all):
            descriptor: Any = thing if isinstance(thing, int) else getattr(thing, "fileno")()
            selector.register(descriptor, selectors.EVENT_READ, place)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            told = sorted(key.data for key, _ in selector.select(left))
            ready = [all[place] for place in told if _is_ready(all[place])]
            if ready or (deadline is not None and time.monotonic() >= deadline):
                return ready
