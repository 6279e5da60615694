"""Every class can be pickled, or says why not."""

import pickle

import pytest
from conftest import apart

import tranship
import tranship.admin
import tranship.component
import tranship.mp as mp
from tranship.mp import _queues


def ends(domain, other):
    """An object of each class that belongs to its process."""
    line = domain.listen("line", tranship.Sender)
    opened = apart(other.open, "line", tranship.Receiver)
    yield from (domain, domain.admin(), domain.pool("pool", 1 << 20), line, line.accept(), opened.result())
    yield from (domain.publish("topic"), other.subscribe("topic"))
    jobs, worker = domain.produce("jobs"), other.consume("jobs")
    jobs.send(b"job")
    taken = apart(worker.recv)
    jobs.wait_for(1)
    yield from (jobs, worker, taken.result())
    service = domain.serve("service")
    connected = apart(other.client, "service")
    asked = apart(service.recv)
    client = connected.result()
    call = client.begin(b"asked")
    yield from (service, client, call, asked.result())


def values(pool):
    """An object of each class that arrives, and what is looked at there."""
    yield pool.copy(b"bytes"), bytes
    yield tranship.top(), repr
    line = mp.Queue()
    line.put("here")
    yield line, lambda line: line.put("here") or line.get()
    for kind in (mp.SimpleQueue, mp.JoinableQueue):
        yield kind(), lambda line: line.put(1) or line.get()
    yield mp.shared_memory.SharedMemory(create=True, size=10), lambda block: block.name
    yield mp.shared_memory.ShareableList([1, "two"]), list
    yield tranship.Store.create("pickled"), lambda store: store.name
    for kind in (tranship.Error, *tranship.Error.__subclasses__()):
        error = kind("its text")
        error.kind, error.code, error.errno = "Full", 7, 11
        yield error, lambda error: (str(error), error.kind, error.code, error.errno)


REFUSED = {"Executor": mp.Executor, "Broadcast": lambda: tranship.Broadcast(1)}


def test_every_class_is_pickled_or_says_why_not(domain, other, pool):
    seen = set()
    for value, look in values(pool):
        again = pickle.loads(pickle.dumps(value))
        assert type(again) is type(value) and look(again) == look(value), value
        seen.add(type(value))
    for name, make in REFUSED.items():
        thing = make()
        with pytest.raises(TypeError, match=f"cannot pickle '{name}' object: .{{20}}"):
            pickle.dumps(thing)
        seen.add(type(thing))
    for thing in ends(domain, other):
        with pytest.raises(TypeError, match=f"cannot pickle 'tranship.{type(thing).__name__}' object: it belongs to this process"):
            pickle.dumps(thing)
        seen.add(type(thing))
    for kind in (tranship.component.Sender, tranship.component.Receiver):
        with pytest.raises(TypeError, match="belongs to this process"):
            pickle.dumps(kind.__new__(kind))
    assert tranship.component.Component.__reduce__ is not object.__reduce__
    named = [getattr(tranship, name) for name in tranship.__all__]
    named += [tranship.admin.Admin, *(vars(_queues)[name] for name in ("Queue", "SimpleQueue", "JoinableQueue"))]
    assert [kind for kind in named if isinstance(kind, type) and kind not in seen] == []
