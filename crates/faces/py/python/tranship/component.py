"""The ends of a component of `tranship run`, found by their names.

>>> from tranship.component import Component
>>> component = Component()  # doctest: +SKIP
>>> frames = component.receiver("frames")  # doctest: +SKIP
>>> for frame in frames: ...  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from . import _native
from ._errors import Error, PeerGone, TimedOut
from ._native import Buffer, Pool
from ._native import Receiver as _Receiver
from ._native import Sender as _Sender

__all__ = ["Component", "Receiver", "Sender"]


def _is_gone(error: Error) -> bool:
    """Whether the other end is gone, and may come again."""
    return error.kind in {"PeerGone", "PeerDied", "Lost", "NotConnected"}


def _not_pickled(end: object) -> TypeError:
    return TypeError(f"cannot pickle {type(end).__name__!r} object: the end belongs to this process, which the program's file gives it to")


class Sender:
    """The sending end of a channel between components. When the receiver's component ends, the next one is taken.

    The file's `when_down` says what a send does meanwhile: it waits, drops the message, or fails. Messages that a receiver had
    not taken when it died are lost. One thread at a time.
    """

    def __reduce__(self) -> NoReturn:
        raise _not_pickled(self)

    def __init__(self, component: Component, end: str) -> None:
        about = component._about(end)
        self._channel = about["channel"]
        self._when_down: str = about["when_down"]
        self._listener = component._listener(end)
        self._pool: Pool = component._pool(end)
        self._to: _Sender | None = None
        #: Messages that were dropped because no receiver was there.
        self.lost = 0

    @property
    def pool(self) -> Pool:
        """The pool that the file describes."""
        return self._pool

    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """Allocates a writable buffer from the end's pool. Waits for memory."""
        return self._pool.alloc(nbytes, timeout=timeout)

    def _receiver(self, timeout: float | None) -> _Sender | None:
        while self._to is None:
            try:
                to = self._listener.accept(timeout if self._when_down == "wait" else 0)
            except TimedOut:
                if self._when_down == "drop":
                    return None
                raise
            try:
                to.assign(self._pool)
            except Error as error:
                if _is_gone(error):
                    continue  # it died as it came
                raise
            self._to = to
        return self._to

    def _carry(self, timeout: float | None, send: Any) -> bool:
        while True:
            to = self._receiver(timeout)
            if to is None:
                self.lost += 1
                return False
            try:
                return bool(send(to))
            except Error as error:
                if not _is_gone(error):
                    raise
                self._to = None
                if self._when_down == "fail":
                    raise

    def send(self, payload: Any, word: int = 0, *, timeout: float | None = None) -> bool:
        """Sends a buffer, an array that lies in one, or a list of such; other objects with few bytes go in the message itself.

        True: it was sent. False: it was dropped.
        """
        return self._carry(timeout, lambda to: to.send(payload, word, timeout=timeout))

    def copy(self, data: Any, word: int = 0, *, timeout: float | None = None) -> bool:
        """Copies bytes into a buffer of the end's pool, and sends it."""
        return self.send(self._pool.copy(data), word, timeout=timeout)

    def send_array(self, array: Any, *, timeout: float | None = None) -> bool:
        """Sends an array with its type and shape, without pickle."""

        def send(to: _Sender) -> bool:
            to.send_array(array, self._pool, timeout=timeout)
            return True

        return self._carry(timeout, send)

    def finish(self) -> None:
        """Waits until the receiver has taken everything, and ends the channel in order."""
        to = self._receiver(None)
        if to is not None:
            to.wait_taken()
            to.close()
        self._to = None
        self._listener.close()


class Receiver:
    """The receiving end of a channel between components. When the sender's component dies, the next one is waited for, if the
    file says that it is started again.

    Iterating ends when the sender has ended in order. One thread at a time.
    """

    def __reduce__(self) -> NoReturn:
        raise _not_pickled(self)

    def __init__(self, component: Component, end: str) -> None:
        self._component = component
        self._end = end
        self._returns: str = component._about(end)["returns"]
        self._from: _Receiver | None = None

    def _carry(self, timeout: float | None, receive: Any) -> Any:
        while True:
            try:
                if self._from is None:
                    self._from = self._component._open(self._end, timeout)
                return receive(self._from)
            except Error as error:
                if not _is_gone(error):
                    raise
                self._from = None
                returns = {
                    "never": error.kind == "NotConnected",
                    "on-failure": error.kind != "PeerGone",
                    "always": True,
                }
                if not returns[self._returns]:
                    raise

    def recv(self, timeout: float | None = None) -> Buffer:
        """Receives the next message: the sender's memory, read-only, without a copy."""
        return self._carry(timeout, lambda end: end.recv(timeout))

    def recv_many(self, most: int = 256, timeout: float | None = None) -> list[Buffer]:
        """Receives all messages that are there, at most `most`. Waits for the first."""
        return self._carry(timeout, lambda end: end.recv_many(most, timeout))

    def recv_array(self, timeout: float | None = None) -> Any:
        """Receives an array that `send_array` sent."""
        return self._carry(timeout, lambda end: end.recv_array(timeout))

    def __iter__(self) -> Iterator[Buffer]:
        return self

    def __next__(self) -> Buffer:
        try:
            return self.recv()
        except PeerGone:
            raise StopIteration from None


class Component(_native.Component):
    """A process of a program that `tranship run` started. An end that the program's file does not give to it raises BadArgument."""

    def sender(self, end: str) -> Sender:
        """Offers a channel of which this component is the sender. The first `send` waits for the receiver."""
        return Sender(self, end)

    def receiver(self, end: str) -> Receiver:
        """Gives a channel of which this component is the receiver. The first `recv` waits for the sender."""
        return Receiver(self, end)
