"""What the tests share: a manager, a channel, other processes, and skips that are heard."""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import tranship

# In the background of a shell it is ignored, and then Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if not report.skipped:
        return
    reason = " ".join(str(call.excinfo.value).split())
    line = f"skipped: crates/faces/py/tests/python/{item.location[0].rsplit('/', 1)[-1]} ({item.name}): {reason}\n"
    os.write(2, line.encode())
    if path := os.environ.get("TRANSHIP_SKIPS"):
        with open(path, "a") as file:
            file.write(line)
    if os.environ.get("TRANSHIP_NO_SKIP", "0") != "0":
        report.outcome = "failed"


def until(true):
    """Looks until something is so that nobody tells."""
    while not true():
        time.sleep(0.002)


def shared_names(pid):
    """What a process has made in /dev/shm: others' names come and go there."""
    names = set()
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        with contextlib.suppress(OSError):
            names.add(os.readlink(fd))
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
        names.update(line.split(maxsplit=5)[5].strip() for line in maps if "/" in line)
    return sorted(name for name in names if name.startswith("/dev/shm/"))


@pytest.fixture
def domain():
    with tranship.embedded("test") as domain:
        yield domain


@pytest.fixture
def other(domain):
    with tranship.connect("other", socket=domain.socket_path) as other:
        yield other


@pytest.fixture
def pool(domain):
    with domain.pool("pool", 16 << 20) as pool:
        yield pool


def apart(function, *arguments, **named):
    """Runs something in another thread; `.result()` waits for it."""
    done = []

    def run():
        try:
            done.append((function(*arguments, **named), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join()
        value, error = done[0]
        if error:
            raise error
        return value

    thread.result = result
    return thread


def join(domain, other, name="channel", **options):
    with domain.listen(name, tranship.Sender, **options) as listener:
        opened = apart(other.open, name, tranship.Receiver)
        sender = listener.accept()
    return sender, opened.result()


@pytest.fixture
def channel(domain, other):
    sender, receiver = join(domain, other)
    with sender, receiver:
        yield sender, receiver


class Peer:
    """Another process. It has `domain`, and speaks by lines: `say(...)` and `hear()`."""

    PROLOGUE = (
        "import sys, os, signal, tranship, numpy\n"
        "def say(*words): print(*words, flush=True)\n"
        "def hear(): return sys.stdin.readline().strip()\n"
        "domain = tranship.connect('peer', socket=sys.argv[1])\n"
    )

    def __init__(self, socket, script):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PROLOGUE + script, socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self):
        return self.process.stdout.readline().strip()

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Waits for it. Its status."""
        return self.process.wait()


@pytest.fixture
def peer(domain):
    all = []

    def start(script):
        all.append(Peer(domain.socket_path, script))
        return all[-1]

    yield start
    for one in all:
        one.kill()
        one.process.stdin.close()
        one.process.stdout.close()
