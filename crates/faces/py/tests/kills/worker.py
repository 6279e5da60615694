"""One end of a channel, in Python: worker.c says what it does."""

import contextlib
import sys

import numpy

import tranship

POOL = 4 << 20
ENDS = {"send": tranship.Sender, "receive": tranship.Receiver}
LEVELS = {"2": "producer", "3": "half", "4": "full"}


def say(*words):
    print(*words, flush=True)


def length(number):
    return 200000 if number % 16 == 15 else 100 + number * 37 % 100 * 100


def sends(sender, pool, count=None):
    number = 0
    while number != count:
        # By turns a buffer that is shared, one that is moved, and an array.
        size, byte = length(number), number % 256
        if number % 3 == 1:
            sender.send(pool.copy(bytes([byte]) * size), number, move=True)
        elif number % 3 == 0 or pool.trust == "half":  # where no array is sent
            sender.send(pool.copy(bytes([byte]) * size), number)
        else:
            array = pool.empty(size, numpy.uint8)
            array[:] = byte
            sender.send(array, number)
        number += 1
        while sender.try_recv_back():
            pass
        yield number


def receives(receiver, count=None):
    number, kept = 0, []
    while number != count:
        buffer = receiver.recv()
        data = numpy.frombuffer(buffer.tobytes(), numpy.uint8)
        assert buffer.word == number and len(data) == length(number) and (data == number % 256).all(), number
        if number % 3 == 1:  # moved
            with memoryview(buffer) as view:
                if not view.readonly:
                    view[0] = 0
            if number % 2:
                # A buffer that cannot be sent back is kept.
                with contextlib.suppress(tranship.Error):
                    receiver.send_back(buffer)
            kept.append(buffer)
        else:
            kept.append(numpy.asarray(buffer) if len(buffer.pieces) == 1 else buffer)
        del kept[:-5]
        number += 1
        yield number


def serve(domain, role, name, pool, last):
    peer = None
    with domain.listen(name, ENDS[role]) as listener:
        while peer != last:
            number = 0
            with listener.accept() as end:
                peer = end.peer
                try:
                    for number in sends(end, pool) if role == "send" else receives(end):
                        pass
                except tranship.PeerGone:
                    how = "gone"
                except tranship.PeerDied:
                    how = "died"
            if role == "send":
                # The whole pool can be had again, or this waits for ever.
                pool.alloc(POOL).release()
            say(peer, how, number)


def main(role, name, what, which, count="0"):
    with tranship.connect() as domain:
        say("joined", domain.id)
        pool = None
        if role == "send":
            level = LEVELS[which] if what == "once" else "producer"
            pool = domain.pool("worker", POOL, chunk_bytes=1 << 16, keep=POOL, preallocate=POOL, trust=level)
        if what == "serve":
            return serve(domain, role, name, pool, int(which))
        count = int(count) or None
        with domain.open(name, ENDS[role]) as end:
            say("open", 0)
            for _ in sends(end, pool, count) if role == "send" else receives(end, count):
                pass


main(*sys.argv[1:])
