"""One run of one system: two processes, a message to and fro between them. Says a JSON list of what it measured.

    python run.py '{"module": ..., "variant": ..., "wait": ..., "touches": [...], ...}'

A system is a module beside this one with a class `Side`, made in both processes at once; what both need from before the fork its
function `shared(case)` makes, if it has one.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from types import SimpleNamespace

# The stamp that ends a part of a run, and the most samples of it.
STOP = 2**63
SAMPLES = 1 << 18


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def meet(end):
    end.send(b"x")
    if not end.recv(1):
        raise SystemExit("the other side is gone")


def ping(side, case):
    """As the other benches: warm for a quarter of the time at least, and until every buffer was used twice if time allows."""
    clock, send, recv = time.perf_counter_ns, side.send, side.recv
    budget = case.sample_ms * 1_000_000
    samples = []
    begun = before = clock()
    warm_until = begun + budget // 4
    end = None
    for stamp in range(1, SAMPLES):
        send(stamp)
        if (back := recv()) != stamp:
            raise SystemExit(f"sent {stamp}, got {back} back")
        now = clock()
        if end is not None:
            samples.append(now - before)
            if now > end:
                break
        elif now > warm_until and (stamp > 2 * case.buffers or now > begun + budget):
            end = now + budget
        before = now
    send(STOP)
    return samples


def pong(side):
    while (stamp := side.recv()) != STOP:
        side.send(stamp)


def measured(op, samples):
    sum_ns = sum(samples)
    samples.sort()
    at = [samples[(len(samples) - 1) * permille // 1000] for permille in (500, 990)]
    return {"op": op, "median_ns": at[0], "p99_ns": at[1], "per_second": 1e9 * len(samples) / sum_ns}


def serve(module, case, role, end, shared):
    die_with_parent()
    os.sched_setaffinity(0, {case.cores[role]})
    case.role, case.meet = role, lambda: meet(end)
    said = []
    side = module.Side(case, shared)
    for touch in case.touches:
        side.touched = touch == "touched"
        meet(end)
        if role == 0:
            said.append(measured(touch, ping(side, case)))
        else:
            pong(side)
    # Nobody leaves while the other still looks at its memory.
    meet(end)
    side.close()
    return said


def main():
    case = SimpleNamespace(**json.loads(sys.argv[1]))
    module = importlib.import_module(case.module)
    os.makedirs(case.folder, exist_ok=True)
    # Threads that a system makes before the fork run on the sides' processors, too.
    os.sched_setaffinity(0, set(case.cores))
    # Forked, as multiprocessing's queues and pipes reach no unrelated process; before any of the systems has threads.
    case.context = multiprocessing.get_context("fork")
    shared = module.shared(case) if hasattr(module, "shared") else None
    ends = socket.socketpair()
    other = case.context.Process(target=serve, args=(module, case, 1, ends[1], shared), daemon=True)
    other.start()
    ends[1].close()
    said = serve(module, case, 0, ends[0], shared)
    other.join()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
