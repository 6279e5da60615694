"""The processes of one program: all share one manager and one store, which the first process that needs them makes.

A place is (path of the manager's socket, name of the store). References, queues and blocks carry their place, so a process that gets one
knows where to ask. A process joins each place once. A forked child joins anew.
"""

import contextlib
import functools
import multiprocessing
import os
import secrets
import threading
from multiprocessing import util

from . import _native, connect, embedded
from ._errors import PeerDied, PeerGone

# The place of the program, as children of multiprocessing inherit it.
_PLACE = "TRANSHIP_MP"
# Addresses of a process's own pool, buffers in it, and the unit in which it gets memory.
_BYTES, _BUFFERS, _CHUNK = 16 << 30, 16384, 4 << 20
# Bytes of all values under keys: as many as the pools have that they lie in.
_QUOTA = 1 << 62
# Seconds to wait for a store whose process is there.
_LATEST = 60

_lock = threading.Lock()
_place = None
_members = {}
_joined = {}


class Family:
    """What this process has of a place: its domain and pool at the manager, and the store."""

    def __init__(self, member, store, name):
        self._member = member
        self.domain, self.pool = member.domain, member.pool
        self.store = store
        self.place = (str(self.domain.socket_path), name)

    @property
    def blocks(self):
        """The pool of memory that all processes which get it may write."""
        with _lock:
            return self._member.blocks


class _Member:
    """A domain with pools of its own. A process has one at each manager: a domain sends no buffers of another."""

    def __init__(self, domain):
        self.domain = domain
        self.pool = self._pool("mp", "producer")

    def _pool(self, name, trust):
        return self.domain.pool(name, _BYTES, slots=_BUFFERS, chunk_bytes=_CHUNK, allow_forward=True, trust=trust)

    @functools.cached_property
    def blocks(self):
        return self._pool("blocks", "full")


def _member(domain):
    """Returns what this process has at the manager of a domain."""
    return _members.setdefault(str(domain.socket_path), _Member(domain))


def _made():
    """Makes the program's manager and store; joins the manager that TRANSHIP_SOCKET names. A component makes a manager of its own: that of
    its program lets it have no name but those of the program's file."""
    name = f"mp-{os.getpid()}-{secrets.token_hex(4)}"
    socket = None if "TRANSHIP_COMPONENT" in os.environ else os.environ.get("TRANSHIP_SOCKET")
    own = f"{name}-home"
    domain = connect(own, socket=socket, helper_thread=True) if socket else embedded(own, helper_thread=True)
    return Family(_member(domain), _native.create_store(domain, name, _QUOTA, False), name)


def _inherited():
    """Returns the place that a parent left in the environment."""
    said = os.environ.get(_PLACE, "")
    # A spawned child has no parent_process() yet while it gets its arguments.
    is_child = multiprocessing.parent_process() is not None or getattr(multiprocessing.current_process(), "_inheriting", False)
    if not is_child or " " not in said:
        return None
    name, socket = said.split(" ", 1)
    return socket, name


def remember(place):
    """Sets the program's place in a child, unless it has one."""
    global _place
    with _lock:
        _place = _place or place


def family():
    """Returns what this process has of the program's own place."""
    global _place
    with _lock:
        _place = _place or _inherited()
        if _place is None:
            found = _made()
            _place = found.place
            _joined[_place] = found
            os.environ[_PLACE] = f"{_place[1]} {_place[0]}"
        return _join(_place, _LATEST)


def at(place):
    """Returns what this process has of a place. The first place that a child hears of is the program's own."""
    remember(place)
    with _lock:
        return _join(place, _LATEST)


def _join(place, timeout):
    if (found := _joined.get(place)) is None:
        member = _members.get(place[0])
        if member is None:
            member = _member(connect(f"mp-{os.getpid()}", socket=place[0], autostart=False, helper_thread=True))
        found = _joined[place] = Family(member, _native.open_store(member.domain, place[1], timeout), place[1])
    return found


def store(domain, name, timeout):
    """Joins a store by its name, at the manager of `domain` or of the program."""
    socket = family().place[0] if domain is None else str(domain.socket_path)
    with _lock:
        return _join((socket, name), timeout)


def create_store(domain, name, quota_bytes, end_with_owner):
    """Makes a store in this process."""
    domain = domain or family().domain
    with _lock:
        member = _members.get(str(domain.socket_path)) or _member(domain)
        made = Family(member, _native.create_store(member.domain, name, quota_bytes, end_with_owner), name)
        _joined[made.place] = made
    return made


def leave(place):
    """Forgets a store: if this process keeps it, it ends."""
    with _lock:
        found = _joined.pop(place, None)
    if found is not None:
        found.store.close()
    if not any(other[0] == place[0] for other in _joined):
        _members.pop(place[0], None)


def flush():
    """Waits until the stores have all that this process has put into queues: at its end, so that nothing is lost."""
    for found in tuple(_joined.values()):
        with contextlib.suppress(PeerGone, PeerDied, ValueError):  # a store that is gone has no queues
            found.store.flush()


def joined(place):
    """Returns what this process has of a place already, or None."""
    return _joined.get(place)


def _forked():
    global _lock, _joined, _members
    _lock = threading.Lock()
    _joined, _members = {}, {}


def _end_by(_):
    """Children of multiprocessing end by its finalizers, and by no others. They begin without any."""
    util.Finalize(None, flush, exitpriority=10)


_end_by(None)
util.register_after_fork(flush, _end_by)
os.register_at_fork(after_in_child=_forked)
