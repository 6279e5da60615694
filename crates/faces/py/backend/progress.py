"""Lines for a user that waits for a build: pip hides the output of a backend, and a build takes minutes."""

import contextlib
import os
import stat
import threading
import time

# Seconds between two lines.
_EVERY = 5


def _where():
    """Where the program that asked for the build writes its own messages, if that is a terminal or a pipe; else our own."""
    try:
        fd = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(2)
    mode = os.fstat(fd).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return fd
    os.close(fd)  # two would write over one another in a file
    return os.dup(2)


@contextlib.contextmanager
def told(what):
    """Reports that this is under way, and for how long already. The caller gets a function that takes a text, to report more."""
    started, done, more = time.monotonic(), threading.Event(), [""]
    out = _where()

    def say(text):
        with contextlib.suppress(OSError):  # full or gone: it is for people only
            os.write(out, f"tranship: {text}\n".encode())

    def tell():
        while not done.wait(_EVERY):
            say(f"{what}: {time.monotonic() - started:.0f} s{more[0]}")

    say(what)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield lambda text: more.__setitem__(0, f", {text}")
    finally:
        done.set()
        thread.join()
        os.close(out)
