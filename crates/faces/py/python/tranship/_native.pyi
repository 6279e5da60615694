"""The extension module. `tranship` has its classes; nobody else needs this."""

import builtins
from collections.abc import Coroutine, Sequence
from types import GenericAlias, TracebackType
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, final, overload, type_check_only

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import Buffer as _Exporter, CapsuleType, Self, TypeVar

_Wait: TypeAlias = Literal["spin-then-sleep", "spin", "sleep"]
_Trust: TypeAlias = Literal["none", "producer", "half", "full"]
_Shape: TypeAlias = int | Sequence[int]
# Before Python 3.12 type checkers do not see that arrays have the buffer protocol.
_Bytes: TypeAlias = _Exporter | NDArray[Any]
_Sendable: TypeAlias = _Bytes | Sequence[_Bytes]
_S = TypeVar("_S", bound=numpy.generic)
# What a listener's connections are at this side.
_Either = TypeVar("_Either", bound=Sender | Receiver)
_E_co = TypeVar("_E_co", bound=Sender | Receiver, covariant=True, default=Any)

KINDS: Final[list[tuple[int, str, int, str]]]
INLINE_BYTES: Final[int]
__version__: Final[str]

# Figures: made by `cargo run -p xtask -- figures write`.
@type_check_only
class _ManagerStat(TypedDict):
    """The manager."""

    instance: int
    pid: int
    uptime_s: int
    total_bytes: int
    granted_bytes: int
    stranded_bytes: int
    data_bytes: int
    table_bytes: int
    ring_bytes: int
    control_page_bytes: int
    descriptors: int
    max_descriptors: int
    own_bytes_per_user: int
    longest_turn_us: int
    pressure: str
    limit_bytes: int

@type_check_only
class _DomainStat(TypedDict):
    """A domain."""

    domain: int
    name: str
    pid: int
    uid: int
    connected: bool
    dumpable: bool
    stranded_bytes: int
    data_bytes: int
    table_bytes: int
    ring_bytes: int
    own_bytes: int
    lingering_bytes: int
    hog: _HogStat | None
    room_bytes: int

@type_check_only
class _HogStat(TypedDict):
    """A rule that a domain has broken: it holds more memory of others than the rule allows."""

    action: str
    over_bytes: int
    since_ms: int

@type_check_only
class _PoolStat(TypedDict):
    """A pool."""

    pool: int
    name: str
    writer: int
    writer_alive: bool
    trust: str
    granted_bytes: int
    quota_bytes: int
    max_bytes: int
    data_bytes: int
    live_bytes: int
    peak_bytes: int
    garbage_bytes: int
    cached_bytes: int
    padding_bytes: int
    table_bytes: int
    lingering_bytes: int
    stranded_bytes: int
    chunk_bytes: int
    slots: int
    readers: int
    live_buffers: int
    cached_buffers: int
    allocs: int
    blocked_ns: int
    collect_ns: int
    waiters: int
    target_ppm: int | None

@type_check_only
class _HeapStat(TypedDict):
    """A heap: private memory of its owner, admitted by the byte."""

    heap: int
    name: str
    owner: int
    admitted_bytes: int
    live_bytes: int
    cached_bytes: int
    quota_bytes: int
    max_bytes: int

@type_check_only
class _ChannelStat(TypedDict):
    """A channel, or a name without one, exported or awaited (`channel` 0, no sink or no source). A channel within a process, or to elsewhere, is shown by its domain's word: the name is the whole address, the number is the domain's own."""

    channel: int
    name: str
    source: int | None
    sink: int | None
    place: str | None
    exported_as: str | None
    waiting_as: str | None
    taken: int
    depth: int
    lines: int
    stalls: int
    stalled_ns: int
    waiting_ns: int
    sink_asleep: bool
    ring_bytes: int
    pools: list[int]

@type_check_only
class _HoldStat(TypedDict):
    """The buffers of a pool that a domain holds."""

    domain: int
    pool: int
    buffers: int
    bytes: int
    lingering_bytes: int
    held_ms: int | None

# End of figures.

@type_check_only
class _Stat(TypedDict):
    manager: _ManagerStat | None
    domains: list[_DomainStat]
    pools: list[_PoolStat]
    channels: list[_ChannelStat]
    holds: list[_HoldStat]
    heaps: list[_HeapStat]

@type_check_only
class _HeldBuffer(TypedDict):
    pool: int
    writer: int
    id: int
    bytes: int
    handles: int
    age: float | None
    channel: str | None
    backtrace: str | None

@type_check_only
class _OwnBuffer(TypedDict):
    pool: int
    pool_name: str
    id: int
    bytes: int
    age: float
    channel: str | None
    backtrace: str | None

@type_check_only
class _Leaks(TypedDict):
    held: list[_HeldBuffer]
    own: list[_OwnBuffer]

@type_check_only
class _PoolStats(TypedDict):
    allocs: int
    frees: int
    cached: int
    chunk_bytes_present: int
    quota_bytes: int
    collected: int
    collections: int
    collect_ns: int
    blocked_ns: int
    waiting: int

@type_check_only
class _Choices(TypedDict):
    name: str | None
    socket: str | None
    autostart: bool
    program: str | None
    helper_thread: bool
    non_dumpable: bool
    manager_timeout: float

def connect(choices: _Choices) -> Domain: ...
def embedded(choices: _Choices) -> Domain: ...
@final
class _Doorbell:
    def fileno(self) -> int: ...

@final
class _Pending:
    def look(self) -> Any: ...
    def fileno(self) -> int: ...
    def cancel(self) -> None: ...

def make_readonly(value: object) -> bool: ...
def in_pool(object: _Bytes) -> tuple[Buffer, int, int] | None: ...
def lies_in(address: int, length: int) -> tuple[Buffer, int] | None: ...
def copied(data: _Bytes) -> Buffer: ...

@type_check_only
class _Closing:
    """An object that is closed at the end of a `with`."""

    def close(self) -> None:
        """Closes it. The end of a `with` does."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

@final
class Buffer:
    """Bytes in a pool. `memoryview(buffer)` and `numpy.asarray(buffer)` show them without a copy.

    Writable while no other process can have it: from `Pool.alloc` to the first send, and after a move to
    where the receiver may write. Dropping the last reference, views included, lets the memory be used again.
    """

    @property
    def nbytes(self) -> int:
        """The length in bytes; 0 when the buffer was released."""
    @property
    def word(self) -> int:
        """The sender's word that came with it."""
    @property
    def readonly(self) -> bool:
        """Whether its bytes cannot be written here."""
    @property
    def released(self) -> bool:
        """Whether it was released, sent back or moved away, or belongs to a parent process."""
    @property
    def is_release(self) -> bool:
        """Whether it has no bytes and is the message that the receiver has released something
        (`Receiver.send_back`). Then `id` is the released buffer, if both ends know it by one number, and `word` is
        the receiver's word."""
    @property
    def id(self) -> int | None:
        """The buffer's number: the same in every process, while a process holds it."""
    @property
    def trust(self) -> _Trust | None:
        """The trust level of its pool, where that is known: which processes can write it."""
    @property
    def sender_pid(self) -> int | None:
        """The process that it came from; None for a buffer that was allocated here."""
    @property
    def exports(self) -> int:
        """The number of its views."""
    @property
    def unique(self) -> bool:
        """Whether no other process can have it."""
    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """The buffers that it consists of: itself, unless it was sent as a list."""
    def freeze(self) -> None:
        """Ends writing. BufferError while there are writable views."""
    def slice(self, start: int = 0, stop: int | None = None) -> Buffer:
        """A part, sharing the memory; ends writing. `buffer[start:stop]` does this too, and counts from the end for
        negative numbers."""
    def truncate(self, len: int) -> None:
        """Shortens it to `len` bytes. BufferError while there are views."""
    def tobytes(self) -> bytes:
        """A copy of all its bytes."""
    def _ask(self) -> None: ...
    def _freeze_array(self) -> None: ...
    def release(self) -> None:
        """Releases the buffer now. BufferError while there are views. Without this call the memory goes with the
        last view."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: builtins.slice[Any, Any, Any], /) -> Buffer: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...

@final
class Pool(_Closing):
    """Memory of this process, out of which buffers are sent. Every process that receives from it can read all of
    it."""

    @property
    def name(self) -> str:
        """The name that it was made with."""
    @property
    def id(self) -> int:
        """The manager's number of it."""
    @property
    def max_bytes(self) -> int:
        """The bytes that it can ever have."""
    @property
    def quota_bytes(self) -> int:
        """The bytes that it may have now."""
    @property
    def trust(self) -> _Trust:
        """The trust level: which processes can write it."""
    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer, with the bytes that the memory held before. Waits for memory that receivers still
        hold, at most `timeout` seconds."""
    def copy(self, data: _Bytes, *, timeout: float | None = None) -> Buffer:
        """A buffer with a copy of an object's bytes."""
    @overload
    def empty(
        self,
        shape: _Shape,
        dtype: type[_S] | numpy.dtype[_S],
        order: Literal["C", "F"] = "C",
        *,
        timeout: float | None = None,
    ) -> NDArray[_S]: ...
    @overload
    def empty(
        self,
        shape: _Shape,
        dtype: DTypeLike | None = None,
        order: Literal["C", "F"] = "C",
        *,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """A numpy array in the pool: sent without a copy. It has the bytes that the memory held before."""
    def zeros(
        self,
        shape: _Shape,
        dtype: DTypeLike | None = ...,
        order: Literal["C", "F"] = "C",
        *,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """A numpy array in the pool, of zeros."""
    def array(
        self, data: ArrayLike, dtype: DTypeLike | None = None, *, timeout: float | None = None
    ) -> NDArray[Any]:
        """A numpy array in the pool with a copy of `data`."""
    def stats(self) -> _PoolStats:
        """Counters of this process since the pool was made."""
    def allow_forward(self, domain: int) -> None:
        """Lets a domain that receives buffers of this pool send them on."""

@final
class Listener(_Closing, Generic[_E_co]):
    """A name that others connect to. Each connection is a channel of its own."""

    @property
    def name(self) -> str:
        """The name, or address, at which it listens."""
    def accept(self, timeout: float | None = None) -> _E_co:
        """The next connection: the end that `listen` named."""
    def accept_async(self) -> Coroutine[Any, Any, _E_co]:
        """Awaits the next connection. Any number of tasks may."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when a peer has connected. One connection may be taken ahead of
        its time, for the next `accept`."""
    def _is_ready(self) -> bool: ...
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _E_co: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, _E_co]: ...

@type_check_only
class _End(_Closing):
    @property
    def channel(self) -> int:
        """The manager's number of the channel."""
    @property
    def peer(self) -> int:
        """The other end's domain."""
    @property
    def peer_pid(self) -> int:
        """The other end's process."""
    @property
    def peer_uid(self) -> int:
        """The other end's user."""

@final
class Sender(_End):
    """The sending end of a channel. Leaving its `with` tells the receiver that this was all; leaving it by an
    exception, that it was not."""

    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer of the channel's own pool, with the bytes that the memory held before. Only the receiver
        can read that pool, and its buffers go over this channel only. Waits for memory that the receiver still holds,
        at most `timeout` seconds."""
    def alloc_async(self, nbytes: int) -> Coroutine[Any, Any, Buffer]:
        """Allocates like `alloc`, and awaits memory."""
    def send(
        self, payload: _Sendable | _Bytes, word: int = 0, *, timeout: float | None = None, move: bool = False
    ) -> bool:
        """Sends a buffer, an array that lies in one, or a list of such, by reference: all are read-only from then
        on. Of an array its bytes alone arrive. Other objects with bytes go in the message itself, up to
        `INLINE_BYTES` bytes.

        With `move` a buffer that was never sent and has no views is given away, and closed here. If the send fails,
        the buffer is as it was.

        True: it was sent. False: it was dropped, as `when_full` says."""
    def send_object(self, object: object, pool: Pool, *, timeout: float | None = None) -> None:
        """Sends any object that can be pickled. Parts of it that lie in a pool and have at least 1 KiB are not
        copied. Arrays and buffers arrive read-only."""
    def send_array(self, array: ArrayLike, pool: Pool, *, timeout: float | None = None) -> None:
        """Sends an array with its type, shape and strides, without pickle. An array that lies in a pool is not
        copied; others are copied to `pool`."""
    def send_async(
        self, payload: _Sendable | _Bytes, word: int = 0, *, move: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Sends like `send`, and awaits it. One task at a time. A buffer that is cancelled before it was given away
        is as it was."""
    def send_object_async(self, object: object, pool: Pool) -> Coroutine[Any, Any, None]:
        """Sends like `send_object`, and awaits it, memory too."""
    def send_array_async(self, array: ArrayLike, pool: Pool) -> Coroutine[Any, Any, None]:
        """Sends like `send_array`, and awaits it, memory too."""
    def wait_taken_async(self) -> Coroutine[Any, Any, None]:
        """Awaits that the receiver has taken all that was sent."""
    def wait_taken(self, timeout: float | None = None) -> None:
        """Waits until the receiver has taken all that was sent."""
    def assign(self, pool: Pool, *, timeout: float | None = None) -> None:
        """Makes the receiver agree to the pool now, instead of at the first send."""
    def try_recv_back(self) -> Buffer | None:
        """Takes a buffer that the receiver sent back, its few bytes, or the message that it has released something
        (`Buffer.is_release`), if there is one."""
    def recv_back(self, timeout: float | None = None) -> Buffer:
        """Waits for a message that the receiver sends back. PeerGone when the receiver is gone and all messages
        were taken."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when `try_recv_back` is to be called. It does not become readable
        while a send is awaited."""
    def _is_ready(self) -> bool: ...
    @property
    def queued(self) -> int:
        """Messages that the receiver has not taken yet."""
    @property
    def dropped(self) -> int:
        """Messages that this sender has dropped, as `when_full` says."""
    @property
    def when_full(self) -> Literal["wait", "drop-new", "drop-oldest"]:
        """The action of a send that finds the channel full. "wait": it waits. "drop-new": it drops the message.
        "drop-oldest": the receiver skips each message behind which a newer one waits, and a full channel drops the new
        one as with "drop-new"."""
    @when_full.setter
    def when_full(self, when_full: Literal["wait", "drop-new", "drop-oldest"]) -> None: ...
    @property
    def peer_gone(self) -> bool:
        """Whether the receiver is closed, or dead."""
    def abandon(self) -> None:
        """Closes the channel, and tells the receiver that this was not all."""
    def _begin(self, payload: _Sendable | _Bytes, word: int, moves: bool) -> bool: ...
    def _begin_taken(self) -> bool: ...
    def _look(self) -> bool: ...
    def _cancel(self, buffer: Buffer | None = None) -> None: ...
    def _doorbell(self) -> _Doorbell: ...

@final
class Receiver(_End):
    """The receiving end of a channel. Iterating ends when the sender has closed its end; PeerDied is raised if the
    sender died instead."""

    def recv(self, timeout: float | None = None) -> Buffer:
        """The next message: the sender's memory, read-only, without a copy."""
    @property
    def skipped(self) -> int:
        """Messages that this end has skipped because newer ones were there and the sender uses "drop-oldest"."""
    def try_recv(self) -> Buffer | None:
        """The next message, if there is one."""
    def recv_object(self, timeout: float | None = None) -> Any:
        """Receives an object that `send_object` sent. Unpickling runs code of the sender's choice: use it only with
        senders that may run code here."""
    def recv_array(self, timeout: float | None = None) -> NDArray[Any]:
        """Receives an array that `send_array` sent: the sender's memory, read-only, with its type and shape. It
        runs no code of the sender's choice."""
    def recv_async(self) -> Coroutine[Any, Any, Buffer]:
        """Awaits the next message. One task at a time."""
    def recv_object_async(self) -> Coroutine[Any, Any, Any]:
        """Receives like `recv_object`, and awaits it."""
    def recv_array_async(self) -> Coroutine[Any, Any, NDArray[Any]]:
        """Receives like `recv_array`, and awaits it."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when `try_recv` is to be called."""
    def _is_ready(self) -> bool: ...
    def _doorbell(self) -> _Doorbell: ...
    def send_back(
        self,
        payload: Buffer | _Bytes,
        word: int = 0,
        *,
        timeout: float | None = ...,
        released: bool = False,
    ) -> None:
        """Sends a payload back to the sender. A buffer that was given to this receiver is handed back, and closed
        here; a buffer that was shared raises AccessDenied. An object with bytes goes in the message itself, up to
        `INLINE_BYTES` bytes.

        With `released` a message of this channel is released as `Buffer.release` does, and the sender gets `word`
        for it from `recv_back`. BufferError while there are views.

        `Full` if the sender takes nothing back for `timeout` seconds. Then the buffer is as it was. By default the
        call does not wait; None is for ever."""
    def send_back_async(
        self, payload: Buffer | _Bytes, word: int = 0, *, released: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Sends back like `send_back`, and awaits room for it."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Buffer]: ...

@final
class Admin:
    """An operator's questions to the manager, and to the domain that it is of (`Domain.admin`)."""

    @property
    def is_managed(self) -> bool:
        """Whether its manager is there."""
    def stat(self) -> _Stat:
        """The manager's figures: of itself, domains, pools, channels, and the holders of buffers."""
    def leaks(self) -> _Leaks:
        """The buffers that this domain holds: those of others, and with TRANSHIP_LEAKS=1 its own, with their age
        and channel."""
    def set_quota(self, pool: int, quota_bytes: int) -> int:
        """Sets the quota of a pool, by its `id`. Returns the bytes that the manager gave it."""

@final
class Domain(_Closing):
    """This process's membership with a manager. A forked child connects anew."""

    @property
    def id(self) -> int:
        """The manager's number of it."""
    @property
    def socket_path(self) -> str | None:
        """Path of the manager's socket, at which other processes join; None if it has none."""
    def pool(
        self,
        name: str,
        max_bytes: int,
        *,
        slots: int | None = None,
        chunk_bytes: int | None = None,
        trust: _Trust = "producer",
        keep: int = 0,
        preallocate: int = 0,
        huge_pages: bool = False,
        align: int | None = None,
        below: int | None = None,
        seal_from: int | None = None,
        allow_forward: bool = False,
    ) -> Pool:
        """Makes a pool of at most so many bytes. `trust` says which processes can write it besides this one: by
        default none. At "half" and "full" every process that has the pool can punch holes into its memory: a reader
        that touches a hole pays for the page. Buffers begin at multiples of `align`; `below` is the address below
        which all of it is mapped in this process. At level "none" buffers of at least `seal_from` bytes are not
        copied by their receivers: no process can write them once they are sent. With `allow_forward` all receivers
        of its buffers may send them on."""
    def listen(
        self,
        name: str,
        end: type[_Either],
        *,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        message_type: str | None = None,
    ) -> Listener[_Either]:
        """Exports a name, at which other processes open the other end. `wait` is how this end waits: it polls for
        some microseconds and then sleeps ("spin-then-sleep"), sleeps at once ("sleep"), or keeps a processor busy
        until there is a message ("spin"). `message_type` is the text that both ends must have alike
        (`tranship.message_type`)."""
    def open(
        self,
        name: str,
        end: type[_Either],
        *,
        timeout: float | None = None,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        snapshots: Pool | None = None,
        message_type: str | None = None,
    ) -> _Either:
        """Connects to a name at which a process listens for the other end, and waits for it. `end` is
        `tranship.Sender` or `tranship.Receiver`: the end that this side gets. A receiver copies messages out of
        pools of level "none" into the pool `snapshots`."""
    def open_async(
        self,
        name: str,
        end: type[_Either],
        *,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        snapshots: Pool | None = None,
        message_type: str | None = None,
    ) -> Coroutine[Any, Any, _Either]:
        """Connects like `open`, and awaits it."""
    def admin(self) -> Admin:
        """Figures, leaks and quotas: an operator's questions to the manager and to this domain."""
    def turn(self) -> None:
        """Handles the manager's news. For programs that seldom call anything else here, and have not set
        `helper_thread`."""
    def fileno(self) -> int:
        """Readable when `turn` is to be called."""
