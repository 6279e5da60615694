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
    collections: int

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
    kind: str
    behind_ns: int

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
class _SubscriberSeen(TypedDict):
    domain: int
    pid: int
    uid: int
    reliable: bool
    behind: int
    kept: int
    more: bool
    left: bool

@type_check_only
class _PublisherStatus(TypedDict):
    published: int
    dropped: int
    demoted: int
    expelled: int
    buffers: int
    subscribers: list[_SubscriberSeen]

@type_check_only
class _SubscriberStatus(TypedDict):
    publisher: int | None
    publisher_pid: int | None
    joined: bool
    reliable: bool
    missed: int
    held: int

@type_check_only
class _ConsumerSeen(TypedDict):
    domain: int
    pid: int
    uid: int
    open: int
    kept: int
    more: bool
    left: bool

@type_check_only
class _ProducerStatus(TypedDict):
    sent: int
    waiting: int
    open: int
    redelivered: int
    lost: int
    rejected: int
    expelled: int
    buffers: int
    consumers: list[_ConsumerSeen]

@type_check_only
class _ProducerSeen(TypedDict):
    domain: int
    pid: int
    joined: bool
    open: int
    held: int

@type_check_only
class _ConsumerStatus(TypedDict):
    producers: list[_ProducerSeen]

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

    The buffer is writable while no other process can have it: from `Pool.alloc` to the first send, and after a move if
    the receiver may write. Dropping the last reference, views included, lets the memory be used again.
    """

    @property
    def nbytes(self) -> int:
        """The length in bytes; 0 when the buffer was released."""
    @property
    def word(self) -> int:
        """The word that the sender sent with the bytes."""
    @property
    def readonly(self) -> bool:
        """Whether this process cannot write the bytes."""
    @property
    def released(self) -> bool:
        """Whether the buffer was released, sent back or moved away, or belongs to a parent process."""
    @property
    def is_release(self) -> bool:
        """Whether this is not a buffer, but the message that the receiver has released one (`Receiver.send_back`). Then
        `id` is the released buffer, if both ends know it by the same number, and `word` is the receiver's word."""
    @property
    def id(self) -> int | None:
        """The buffer's number: the same in every process, while a process holds it."""
    @property
    def trust(self) -> _Trust | None:
        """The trust level of the buffer's pool, if it is known: which processes can write the pool."""
    @property
    def sender_pid(self) -> int | None:
        """The process that sent the buffer; None for a buffer that was allocated here."""
    @property
    def exports(self) -> int:
        """The number of views of the buffer."""
    @property
    def unique(self) -> bool:
        """Whether no other process can have the buffer."""
    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """The pieces of a message: a list with the buffer itself, or the buffers of a list that was sent."""
    def freeze(self) -> None:
        """Makes the buffer read-only. BufferError while there are writable views."""
    def slice(self, start: int = 0, stop: int | None = None) -> Buffer:
        """A part of the buffer, in the same memory. The buffer becomes read-only. `buffer[start:stop]` does this too,
        and counts from the end for negative numbers."""
    def truncate(self, len: int) -> None:
        """Shortens the buffer to `len` bytes. BufferError while there are views."""
    def tobytes(self) -> bytes:
        """A copy of all its bytes."""
    def _ask(self) -> None: ...
    def _freeze_array(self) -> None: ...
    def release(self) -> None:
        """Releases the buffer now. BufferError while there are views. Without this call the buffer is released with its
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
        """The name of the pool."""
    @property
    def id(self) -> int:
        """The manager's number of it."""
    @property
    def max_bytes(self) -> int:
        """The most bytes that the pool can ever have."""
    @property
    def quota_bytes(self) -> int:
        """The bytes that the pool may have now."""
    @property
    def trust(self) -> _Trust:
        """The trust level: which processes can write it."""
    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer, with the bytes that the memory held before. Waits for memory that receivers still
        hold, at most `timeout` seconds."""
    def block(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A buffer that this process and every process that gets it may write. `BadArgument`: the pool's level is not
        `full`."""
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
        """A numpy array in the pool, which is sent without a copy. It has the bytes that the memory held before."""
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
        """The name or address at which the listener listens."""
    def accept(self, timeout: float | None = None) -> _E_co:
        """The next connection: the end that `listen` named."""
    def accept_async(self) -> Coroutine[Any, Any, _E_co]:
        """Awaits the next connection. Any number of tasks may wait."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when a peer has connected. The listener may already take one
        connection, for the next `accept`."""
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
    """The sending end of a channel. At the end of its `with` block the receiver is told that all was sent. If an
    exception ends the block, the receiver is told that it was not all."""

    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer of the channel's own pool, with the bytes that the memory held before. Only the receiver
        can read that pool, and its buffers can be sent over this channel only. Waits for memory that the receiver still
        holds, at most `timeout` seconds."""
    def alloc_async(self, nbytes: int) -> Coroutine[Any, Any, Buffer]:
        """Allocates like `alloc`, and awaits memory."""
    def send(
        self, payload: Buffer | _Sendable, word: int = 0, *, timeout: float | None = None, move: bool = False
    ) -> bool:
        """Sends a buffer, an array in a buffer, or a list of these, by reference: all are read-only from then on. Only
        the bytes of an array arrive. Other objects with bytes go in the message itself, up to `INLINE_BYTES` bytes.

        With `move` a buffer that was never sent and has no views is given away, and closed here. If the send fails, the
        buffer is as it was.

        Returns True if the payload was sent, False if it was dropped, as `when_full` says."""
    def send_many(
        self, payloads: Sequence[_Sendable], words: Sequence[int] | None = None, *, timeout: float | None = None
    ) -> int:
        """Sends several payloads, each as `send` does, with one wake-up of the receiver. `words` are those of the
        payloads, 0 by default. Waits for room, at most `timeout` seconds for all together. Returns how many were sent,
        in order from the first. `Full` if none was sent."""
    def send_object(self, object: object, pool: Pool, *, timeout: float | None = None) -> None:
        """Sends any object that can be pickled. Parts of it that lie in a pool and have at least 1 KiB are not
        copied. Arrays and buffers arrive read-only."""
    def send_array(self, array: ArrayLike, pool: Pool, *, timeout: float | None = None) -> None:
        """Sends an array with its type, shape and strides, without pickle. An array that lies in a pool is not
        copied; others are copied to `pool`."""
    def send_async(
        self, payload: Buffer | _Sendable, word: int = 0, *, move: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Sends like `send`, and awaits room. One task at a time. If the task is cancelled before the buffer was given
        away, the buffer is as before."""
    def send_object_async(self, object: object, pool: Pool) -> Coroutine[Any, Any, None]:
        """Sends like `send_object`, and awaits room and memory."""
    def send_array_async(self, array: ArrayLike, pool: Pool) -> Coroutine[Any, Any, None]:
        """Sends like `send_array`, and awaits room and memory."""
    def wait_taken_async(self) -> Coroutine[Any, Any, None]:
        """Awaits the moment when the receiver has taken all messages."""
    def wait_taken(self, timeout: float | None = None) -> None:
        """Waits until the receiver has taken all messages."""
    def assign(self, pool: Pool, *, timeout: float | None = None) -> None:
        """Makes the receiver agree to the pool now, instead of at the first send."""
    def try_recv_back(self) -> Buffer | None:
        """Takes the next payload that the receiver sent back, if there is one: a buffer, a few bytes, or the message
        that the receiver has released a buffer (`Buffer.is_release`)."""
    def recv_back(self, timeout: float | None = None) -> Buffer:
        """Waits for a message that the receiver sends back. PeerGone when the receiver is gone and all messages
        were taken."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when `try_recv_back` has something to return. It does not become
        readable while a send is awaited."""
    def _is_ready(self) -> bool: ...
    @property
    def queued(self) -> int:
        """Messages that the receiver has not taken yet."""
    @property
    def dropped(self) -> int:
        """Messages that this sender has dropped, as `when_full` says."""
    @property
    def when_full(self) -> Literal["wait", "drop-new", "drop-oldest"]:
        """The action of a send that finds the channel full. "wait": the send waits. "drop-new": the send drops the
        message. "drop-oldest": the receiver skips each message that has a newer one behind it, and a send into a full
        channel drops the message as with "drop-new"."""
    @when_full.setter
    def when_full(self, when_full: Literal["wait", "drop-new", "drop-oldest"]) -> None: ...
    @property
    def peer_gone(self) -> bool:
        """Whether the receiver is closed, or dead."""
    def abandon(self) -> None:
        """Closes the channel, and tells the receiver that not all was sent."""
    def _begin(self, payload: Buffer | _Sendable, word: int, moves: bool) -> bool: ...
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
        """Messages that this end has skipped because newer messages were there and the sender uses "drop-oldest"."""
    def try_recv(self) -> Buffer | None:
        """The next message, if there is one."""
    def recv_object(self, timeout: float | None = None) -> Any:
        """Receives an object that `send_object` sent. Unpickling runs code of the sender's choice: use it only with
        senders that may run code here."""
    def recv_array(self, timeout: float | None = None) -> NDArray[Any]:
        """Receives an array that `send_array` sent: the sender's memory, read-only, with its type and shape. It
        runs no code of the sender's choice."""
    def recv_many(self, most: int = 256, timeout: float | None = None) -> list[Buffer]:
        """All messages that are there, at most `most`. Waits for the first one as `recv` does."""
    def recv_async(self) -> Coroutine[Any, Any, Buffer]:
        """Awaits the next message. One task at a time."""
    def recv_object_async(self) -> Coroutine[Any, Any, Any]:
        """Receives like `recv_object`, and awaits it."""
    def recv_array_async(self) -> Coroutine[Any, Any, NDArray[Any]]:
        """Receives like `recv_array`, and awaits it."""
    def fileno(self) -> int:
        """A descriptor for event loops: readable when `try_recv` has something to return."""
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
        """Sends a payload back to the sender. A buffer that was moved to this receiver is handed back, and closed here.
        A buffer that was shared raises AccessDenied. An object with bytes goes in the message itself, up to
        `INLINE_BYTES` bytes.

        With `released` a message of this channel is released as `Buffer.release` does, and the sender gets `word` for
        it from `recv_back`. BufferError while there are views.

        `Full` if the sender takes nothing back for `timeout` seconds. Then the buffer is as before. By default the call
        does not wait. With None it waits without limit."""
    def send_back_async(
        self, payload: Buffer | _Bytes, word: int = 0, *, released: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Sends back like `send_back`, and awaits room for it."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Buffer]: ...

@final
class Publisher(_Closing):
    """The writing end of a topic. Its subscribers come and go by themselves.

    The helper thread of its domain tends an idle publisher. Closing it, or the end of its `with` block, ends the topic.
    Subscribers can still take the messages in the ring."""

    @property
    def name(self) -> str:
        """The topic's name."""
    @property
    def subscribers(self) -> int:
        """Subscribers that have joined and not left."""
    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer of the topic's own pool, with the bytes that the memory held before. All subscribers can
        read that pool, and its buffers can be sent over this topic only. If no memory is free, the oldest messages are
        withdrawn. Waits for memory that subscribers hold, at most `timeout` seconds; then OutOfMemory names the
        holders."""
    def alloc_async(self, nbytes: int) -> Coroutine[Any, Any, Buffer]:
        """Allocates like `alloc`, and awaits memory."""
    def send(self, payload: Buffer | _Sendable, word: int = 0, *, timeout: float | None = None) -> bool:
        """Publishes a buffer of `alloc`, an array that lies in one, or a list of such, by reference: all are read-only
        from then on. Other objects with bytes go in the message itself, up to `INLINE_BYTES` bytes.

        Waits only for reliable subscribers, as `when_behind` says. True: it was published. False: it was dropped,
        because a reliable subscriber was behind ("drop-new"). TimedOut after `timeout` seconds: nothing was
        published."""
    def send_async(self, payload: Buffer | _Sendable, word: int = 0) -> Coroutine[Any, Any, bool]:
        """Publishes like `send`, and awaits reliable subscribers. One task at a time."""
    def _look(self, payload: Buffer | _Sendable, word: int) -> bool | None: ...
    def _doorbell(self) -> _Doorbell: ...
    def _rest(self) -> None: ...
    def tend(self) -> None:
        """Takes new subscribers in, and removes those that are gone. `send` does this from time to time. An idle
        publisher calls `tend`, for example when the domain's descriptor is readable. The call does not block."""
    def wait_for(self, subscribers: int, timeout: float | None = None) -> None:
        """Waits until at least `subscribers` of them have joined. TimedOut after `timeout` seconds."""
    def status(self) -> _PublisherStatus:
        """The publisher's status: what was published, and what each subscriber holds and has not yet taken."""

@final
class Subscriber(_Closing):
    """The reading end of a topic. Iterating ends when the publisher has ended the topic. If the publisher died,
    PeerDied is raised. A later `recv` waits for another publisher of the name."""

    @property
    def name(self) -> str:
        """The topic's name."""
    @property
    def missed(self) -> int:
        """Messages that were overwritten before they were taken, or skipped by `latest`."""
    def recv(self, timeout: float | None = None) -> Buffer:
        """The next message: the publisher's memory, read-only, without a copy. Waits for a publisher, too. A message
        that was overwritten before it was taken is counted in `missed`.

        PeerGone when the publisher has ended the topic, PeerDied when it died. Each is raised once: the next call waits
        for another publisher. `Limit` (SystemFailed) when this subscriber keeps as many buffers as it may."""
    def try_recv(self) -> Buffer | None:
        """The next message, if it is there. The call also joins the topic."""
    def recv_async(self) -> Coroutine[Any, Any, Buffer]:
        """Awaits the next message. One task at a time."""
    def _look(self) -> Buffer | None: ...
    def _doorbell(self) -> _Doorbell: ...
    def _rest(self) -> None: ...
    def status(self) -> _SubscriberStatus:
        """The subscriber's status: the publisher, whether it has taken this subscriber in, the missed messages, and the
        held buffers."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Buffer]: ...

@final
class Producer(_Closing):
    """A writing end of a queue: each item goes to one consumer.

    A producer that rarely sends calls `tend`, which takes consumers in and gives back the items of dead consumers. When
    the producer is closed, only consumers that have joined can still take its waiting items: `wait_done` waits for
    them."""

    @property
    def name(self) -> str:
        """The queue's name."""
    @property
    def consumers(self) -> int:
        """Consumers that have joined and not left."""
    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer of the producer's own pool, with the bytes that the memory held before. All consumers can
        read that pool, and its buffers can be sent over this queue only. Waits for memory that items and consumers
        hold, at most `timeout` seconds."""
    def alloc_async(self, nbytes: int) -> Coroutine[Any, Any, Buffer]:
        """Allocates like `alloc`, and awaits memory."""
    def send(self, payload: Buffer | _Sendable, word: int = 0, *, timeout: float | None = None) -> None:
        """Puts a buffer of `alloc`, an array in such a buffer, or a list of these, into the queue by reference: all are
        read-only from then on. Other objects with bytes go in the item itself, up to `INLINE_BYTES` bytes.

        Waits for room, at most `timeout` seconds: then Full or TimedOut names the consumers."""
    def send_async(self, payload: Buffer | _Sendable, word: int = 0) -> Coroutine[Any, Any, None]:
        """Sends like `send`, and awaits room."""
    def _look(self, payload: Buffer | _Sendable, word: int) -> bool | None: ...
    def _doorbell(self) -> _Doorbell: ...
    def _rest(self) -> None: ...
    def tend(self) -> None:
        """Takes new consumers in, and gives back the items that ended consumers had not acknowledged. The call does not
        block."""
    def wait_for(self, consumers: int, timeout: float | None = None) -> None:
        """Waits until at least `consumers` of them have joined. TimedOut after `timeout` seconds."""
    def wait_done(self, timeout: float | None = None) -> None:
        """Waits until all items are taken, and acknowledged, lost or rejected. TimedOut after `timeout` seconds."""
    def take_lost(self) -> tuple[Buffer, Literal["ended", "rejected"], int | None] | None:
        """An item that was lost with its consumer ("ended", with `report_lost`) or that a consumer has rejected
        ("rejected"), as (buffer, cause, consumer's process); None if there is none."""
    def status(self) -> _ProducerStatus:
        """The producer's status: items that were sent, that wait and that consumers have, and what each consumer
        keeps."""

@final
class Consumer(_Closing):
    """A reading end of a queue. It takes items of all producers. No other consumer gets an item that it has taken.
    Iterating never ends."""

    def close(self) -> None:
        """Closes it. The end of a `with` does. Items that were not acknowledged go back to the queue."""
    @property
    def name(self) -> str:
        """The queue's name."""
    def recv(self, timeout: float | None = None) -> Item:
        """The next item. Waits for a producer, too, at most `timeout` seconds."""
    def try_recv(self) -> Item | None:
        """The next item, if there is one. The call also joins the queue."""
    def recv_async(self) -> Coroutine[Any, Any, Item]:
        """Awaits the next item. One task at a time."""
    def _look(self) -> Item | None: ...
    def _doorbell(self) -> _Doorbell: ...
    def _rest(self) -> None: ...
    def status(self) -> _ConsumerStatus:
        """The producers that this consumer knows: the domain and process of each, whether it has taken this consumer
        in, and what this consumer has of it."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Item: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Item]: ...

@final
class Item:
    """An item that a consumer has taken. `ack` says that the item is done. Without `ack` it goes back to the queue when
    it is dropped, and when this process dies.

    The end of a `with` block acknowledges it; if an exception ends the block, the item goes back."""

    @property
    def word(self) -> int:
        """The word that the producer sent with the item."""
    @property
    def redelivered(self) -> bool:
        """Whether the item was taken before, by a consumer that gave it back or died."""
    @property
    def producer(self) -> int:
        """The producer's domain."""
    @property
    def payload(self) -> Buffer:
        """The content: the producer's memory, read-only, without a copy. It stays valid when the item is done."""
    def ack(self) -> None:
        """Acknowledges the item: it is done, and no other consumer gets it. PeerGone: its producer had ended before."""
    def requeue(self) -> None:
        """Gives the item back to its queue, where another consumer may take it."""
    def reject(self) -> None:
        """Rejects the item: its producer gets it from `take_lost`."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

@final
class Service(_Closing):
    """A name at which clients call. Any number of threads and tasks may take requests: the idle one gets the next.

    Closing it, or leaving its `with`, ends the service."""

    @property
    def name(self) -> str:
        """The service's name."""
    def recv(self, timeout: float | None = None) -> Request:
        """The next request. Waits for it, at most `timeout` seconds."""
    def try_recv(self) -> Request | None:
        """The next request, if there is one."""
    def recv_async(self) -> Coroutine[Any, Any, Request]:
        """Awaits the next request. Any number of tasks may."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Request: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Request]: ...

@final
class Request(_Closing):
    """A request that a worker has taken. It ends by `reply`, by `fail`, or by being let go, which its client is told.

    Leaving its `with` lets it go if it was not answered."""

    def close(self) -> None:
        """Lets it go, if it was not answered: its client's call raises PeerDied. The end of a `with` does."""
    @property
    def payload(self) -> Buffer:
        """Payload that the client sent."""
    @property
    def method(self) -> int:
        """The number of the called method; 0 where the service has none."""
    @property
    def client(self) -> int:
        """The client's domain."""
    @property
    def client_pid(self) -> int:
        """The client's process."""
    @property
    def client_uid(self) -> int:
        """The client's user."""
    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more: the call was cancelled, its time is over, or its client is
        gone."""
    @property
    def left(self) -> float | None:
        """Seconds for which the client still waits; None: without end."""
    def alloc(self, nbytes: int) -> Buffer:
        """A writable buffer for the answer, which no process but the client can read. Waits at most 5 s for a client
        that keeps its earlier answers; then OutOfMemory."""
    def reply(self, payload: Buffer | _Sendable, *, move: bool = False) -> None:
        """Answers with a result: a buffer, an array that lies in one, a list of such, or up to `INLINE_BYTES` bytes, as
        `Sender.send` takes them. Waits at most 5 s for a client that has to agree to a pool. The request is over then,
        also if this fails."""
    def fail(self, payload: Buffer | _Sendable, *, move: bool = False) -> None:
        """Answers with an error of the service's own: the client's call raises ServiceFailed, which has this
        payload."""
    def send(self, payload: Buffer | _Sendable, *, timeout: float | None = None, move: bool = False) -> None:
        """Sends an item of a call with streams to the client, as `Sender.send` takes them. Waits until the client has
        taken enough of the earlier ones. PeerGone: nobody waits for the call any more. TimedOut after `timeout` seconds; a
        buffer that was to be moved is closed then."""
    def send_async(self, payload: Buffer | _Sendable) -> Coroutine[Any, Any, None]:
        """Sends like `send`, and awaits it."""
    def recv(self, timeout: float | None = None) -> Buffer | None:
        """The next item of a call with streams; None: the client has finished. Waits, and fails, as `send` does."""
    def recv_async(self) -> Coroutine[Any, Any, Buffer | None]:
        """Awaits the next item."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Buffer]: ...

@final
class Client(_Closing):
    """Calls a service. Any number of threads and tasks may."""

    @property
    def name(self) -> str:
        """The service's name."""
    @property
    def in_flight(self) -> int:
        """Calls in flight, those included that were cancelled and whose answer has still to come."""
    def call(
        self, payload: Buffer | _Sendable, *, timeout: float | None = None, method: int = 0, move: bool = False
    ) -> Buffer:
        """Calls the service, and waits for its answer: the service's memory, read-only, without a copy. The payload is
        as for `Sender.send`. A time limit travels along: no worker takes a request whose time is over.

        ServiceFailed: the service answered with an error of its own. PeerDied: its process died, or let the request
        go. PeerGone: it has ended. TimedOut: after `timeout` seconds, and the call is cancelled."""
    def call_async(self, payload: Buffer | _Sendable, *, method: int = 0) -> Coroutine[Any, Any, Buffer]:
        """Calls like `call`, and awaits the answer. A task that is cancelled cancels its call. The payload is
        shared."""
    @property
    def workers(self) -> int:
        """Processes that are connected and serve the name. Looks for further ones of a shared name."""
    def begin(
        self,
        payload: Buffer | _Sendable,
        *,
        timeout: float | None = None,
        method: int = 0,
        move: bool = False,
        streams: bool = False,
    ) -> Call:
        """Sends a request, and does not wait for its answer: `Call.wait` does. Several calls may be in flight. With
        `streams` the call carries any number of items either way before its answer: `Call.send`, `Call.recv`."""
    def alloc(self, nbytes: int, *, timeout: float | None = None) -> Buffer:
        """A writable buffer for a request, which no process but the service can read. Waits for memory that the service
        still holds, at most `timeout` seconds."""

@final
class Call(_Closing):
    """A call in flight. Closing it, or leaving its `with`, cancels it if its answer was not taken."""

    def close(self) -> None:
        """Cancels it, unless its answer was taken. The end of a `with` does."""
    def wait(self, timeout: float | None = None) -> Buffer:
        """Waits for the answer, as `Client.call` does. After TimedOut it can be waited for again. Once. Items that the
        service sent and that were not taken are let go."""
    def wait_async(self) -> Coroutine[Any, Any, Buffer]:
        """Awaits the answer. A task that is cancelled cancels the call."""
    def send(self, payload: Buffer | _Sendable, *, timeout: float | None = None, move: bool = False) -> None:
        """Sends an item of a call with streams, as `Sender.send` takes them. Waits until the service has taken enough of
        the earlier ones. TimedOut after `timeout` seconds; a buffer that was to be moved is closed then."""
    def send_async(self, payload: Buffer | _Sendable) -> Coroutine[Any, Any, None]:
        """Sends like `send`, and awaits it."""
    def finish(self) -> None:
        """Says that no further item comes: the service's `Request.recv` gives None."""
    def recv(self, timeout: float | None = None) -> Buffer | None:
        """The next item that the service sends; None: the call is over, and `wait` says how. TimedOut after `timeout`
        seconds."""
    def recv_async(self) -> Coroutine[Any, Any, Buffer | None]:
        """Awaits the next item."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Buffer]: ...

@final
class Admin:
    """An operator's questions to the manager, and to the domain from which this object was made (`Domain.admin`)."""

    @property
    def is_managed(self) -> bool:
        """Whether the manager is there."""
    def stat(self) -> _Stat:
        """The manager's figures: about itself, domains, pools, channels, and the holders of buffers."""
    def leaks(self) -> _Leaks:
        """The buffers that this domain holds, with their age and channel: buffers of others, and with TRANSHIP_LEAKS=1
        also its own."""
    def set_quota(self, pool: int, quota_bytes: int) -> int:
        """Sets the quota of a pool, by its `id`. Returns the bytes that the manager gave it."""

class Component:
    def __new__(cls) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def replica(self) -> int: ...
    @property
    def domain(self) -> Domain: ...
    def _about(self, end: str) -> dict[str, str]: ...
    def _listener(self, end: str) -> Listener[Sender]: ...
    def _pool(self, end: str) -> Pool: ...
    def _open(self, end: str, timeout: float | None = None) -> Receiver: ...
    def publisher(self, end: str) -> Publisher: ...
    def subscriber(self, end: str) -> Subscriber: ...
    def producer(self, end: str) -> Producer: ...
    def consumer(self, end: str) -> Consumer: ...
    def service(self, end: str) -> Service: ...
    def client(self, end: str, *, timeout: float | None = None) -> Client: ...
    def ready(self) -> None: ...

@final
class Domain(_Closing):
    """This process's membership with a manager. A forked child connects again."""

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
        """Makes a pool of at most `max_bytes` bytes. `trust` says which other processes can write it: by default none.
        At "half" and "full" every process that has the pool can punch holes into its memory: a reader that touches a
        hole pays for the page. Buffers begin at multiples of `align`; `below` is the address below which the whole pool
        is mapped in this process. At level "none" buffers of at least `seal_from` bytes are not copied by their
        receivers: no process can write them once they are sent. With `allow_forward` all receivers of the pool's
        buffers may send them on."""
    def listen(
        self,
        name: str,
        end: type[_Either],
        *,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        message_type: str | None = None,
    ) -> Listener[_Either]:
        """Exports a name, at which other processes open the other end. `wait` says how this end waits: it polls for
        some microseconds and then sleeps ("spin-then-sleep"), sleeps at once ("sleep"), or keeps a processor busy until
        there is a message ("spin"). `message_type` is a text that must be the same at both ends
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
        """Connects to a name at which a process listens for the other end, and waits for it. `end` is the end that this
        side gets: `tranship.Sender` or `tranship.Receiver`. A receiver copies messages out of pools of level "none"
        into the pool `snapshots`."""
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
    def publish(
        self,
        name: str,
        *,
        depth: int = 16,
        history: int = 0,
        keep: int = 64,
        when_behind: Literal["overwrite", "drop-new"] | float = "overwrite",
        max_bytes: int = 1073741824,
        slots: int = 1024,
        shared: bool = False,
        pieces: int | None = None,
        message_type: str | None = None,
    ) -> Publisher:
        """Publishes a topic: each message goes to all subscribers, and costs the same for one and for two hundred.

        `depth` messages are in the ring, a power of two, 2 to 65,536; a late subscriber gets the last `history` of
        them. A subscriber may keep `keep` buffers and 12 more. `when_behind` says what `send` does when a reliable
        subscriber is behind: "overwrite" the oldest message (then no subscriber is reliable), "drop-new", or a number
        of seconds to wait. The topic's own pool has at most `max_bytes` of addresses and `slots` buffers. With `shared`
        publishers of other domains may use the name too, if all of them set `shared`. A message may have `pieces`
        pieces, 8 by default, up to 32. `message_type` is a text that must be the same on both sides
        (`tranship.message_type`)."""
    def subscribe(
        self,
        name: str,
        *,
        reliable: bool = False,
        latest: bool = False,
        history: int | None = None,
        wait: _Wait = "spin-then-sleep",
        message_type: str | None = None,
    ) -> Subscriber:
        """Subscribes to a topic, and returns at once: it joins in `recv` or `try_recv`, which wait for a publisher.

        With `reliable` the publisher does not overwrite messages that this subscriber has not yet taken, as far as its
        `when_behind` says. With `latest` only the newest message is received. At most `history` messages from before it
        joins are received, or as many as the topic gives. `wait` and `message_type` are as for `listen`."""
    def produce(
        self,
        name: str,
        *,
        depth: int = 64,
        keep: int = 64,
        report_lost: bool = False,
        exclusive: bool = False,
        max_bytes: int = 1073741824,
        slots: int = 1024,
        pieces: int | None = None,
        message_type: str | None = None,
    ) -> Producer:
        """Joins a queue as a producer: each of its items goes to one consumer.

        `depth` of its items may wait, a power of two, 2 to 65,536. A consumer may keep `keep` buffers and 12 more. An
        item whose consumer ended without acknowledging it goes back to the queue, or with `report_lost` to `take_lost`.
        With `exclusive` no other producer may use the name. The producer's own pool has at most `max_bytes` of
        addresses and `slots` buffers. An item may have `pieces` pieces, 8 by default, up to 32. `message_type` is a
        text that must be the same on both sides (`tranship.message_type`)."""
    def consume(
        self,
        name: str,
        *,
        auto_ack: bool = False,
        unacknowledged: int | None = None,
        wait: _Wait = "spin-then-sleep",
        message_type: str | None = None,
    ) -> Consumer:
        """Joins a queue as a consumer, and returns at once: it joins while it receives.

        With `auto_ack` items are done when they are received. Otherwise `unacknowledged` items of one producer may be
        taken and not acknowledged, 1 to 64. `wait` and `message_type` are as for `listen`."""
    def serve(
        self,
        name: str,
        *,
        lines: int = 256,
        clients_per_user: int = 64,
        wait: _Wait = "spin-then-sleep",
        types: tuple[str, str] | None = None,
        shared: bool = False,
    ) -> Service:
        """Offers a service: clients call it by its name, and each request goes to one worker. `lines` is as for its
        clients, of which one user has at most `clients_per_user` at a time. `types` are the texts of requests and
        answers (`tranship.message_type`), which both sides must have alike. `wait` is as for `listen`.
        With `shared` services of other domains may have the name too, if all of them say so: a client is connected to all
        of them."""
    def client(
        self,
        name: str,
        *,
        timeout: float | None = None,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        types: tuple[str, str] | None = None,
    ) -> Client:
        """Connects to a service, and waits until it is there and takes this client, at most `timeout` seconds."""
    def client_async(
        self,
        name: str,
        *,
        lines: int = 256,
        wait: _Wait = "spin-then-sleep",
        types: tuple[str, str] | None = None,
    ) -> Coroutine[Any, Any, Client]:
        """Connects like `client`, and awaits it."""
    def admin(self) -> Admin:
        """Figures, leaks and quotas: an operator's questions to the manager and to this domain."""
    def turn(self) -> None:
        """Handles the manager's news. Programs that rarely call anything else here, and have not set `helper_thread`,
        call it."""
    def fileno(self) -> int:
        """A descriptor that is readable when `turn` has work to do."""

def create_store(domain: Domain, name: str, quota_bytes: int, end_with_owner: bool) -> Store:
    """Makes a store."""

def open_store(domain: Domain, name: str, timeout: float | None) -> Store:
    """Joins a store. The wait is one call, which Ctrl-C ends after `timeout` seconds."""

def shared(array: Any) -> Buffer | None:
    """Returns a read-only buffer over the bytes of an array, or None: it is in no pool. From here on the array is
    read-only."""

@final
class Store:
    """A handle of a store: of the process that keeps it, or of another one."""

    @property
    def is_home(self) -> bool:
        """Whether this process keeps the values."""
    def put(self, key: bytes, pieces: Sequence[Buffer]) -> None:
        """Keeps a value until it is deleted or evicted."""
    def park(self, key: bytes, pieces: Sequence[Buffer]) -> None:
        """Keeps a value for one taker."""
    def get(self, key: bytes, timeout: float | None) -> tuple[Buffer, ...]:
        """The value of a key; waits for it."""
    def take(self, key: bytes) -> tuple[Buffer, ...]:
        """The value of a key, which is forgotten."""
    def delete(self, key: bytes) -> None:
        """Forgets a value."""
    def pin(self, key: bytes, pinned: bool) -> None:
        """Keeps a value from being evicted, or ends that."""
    def nbytes(self) -> int:
        """The bytes that values under keys have."""
    def push(self, queue: bytes, pieces: Sequence[Buffer], most: int, timeout: float | None) -> None:
        """Appends to a queue of at most `most` items, 0 for any number. Without a limit it does not wait for the
        store's confirmation, of which a later call hears."""
    def pop(self, queue: bytes, timeout: float | None) -> tuple[Buffer, ...]:
        """Takes the first item of a queue."""
    def finish(self, queue: bytes) -> None:
        """Says that an item is finished."""
    def join(self, queue: bytes) -> None:
        """Waits until all items are finished."""
    def length(self, queue: bytes) -> int:
        """The number of items."""
    def open(self, queue: bytes) -> None:
        """Opens a queue."""
    def close_queue(self, queue: bytes) -> None:
        """Closes a queue."""
    def block(self, key: bytes, nbytes: int) -> Buffer:
        """Makes a block of zeros that all may write, and opens it."""
    def attach(self, key: bytes) -> Buffer:
        """Opens a block."""
    def detach(self, key: bytes) -> None:
        """Closes a block. The last domain that does so frees it."""
    def unlink(self, key: bytes) -> None:
        """Forgets a block's name."""
    def flush(self) -> None:
        """Waits until all pushes are confirmed."""
    def close(self) -> None:
        """Leaves the store. If this process keeps it, it ends."""
