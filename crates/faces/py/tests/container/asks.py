"""Outside: sends an array to whoever takes it, and looks at the answer. Says how the manager sees the other, and how that one sees itself."""

import numpy

import tranship

with tranship.connect(autostart=False) as domain, domain.pool("asks", 64 << 20) as pool:
    with domain.listen("ask", tranship.Sender) as asks, domain.listen("answer", tranship.Receiver) as answers:
        print("listens", flush=True)
        with asks.accept() as ask, answers.accept() as answer:
            array = pool.empty((1000, 1000, 3), numpy.uint8)
            array[:] = numpy.arange(3_000_000, dtype=numpy.uint32).reshape(array.shape) % 251
            ask.send(array)
            got = answer.recv()
            assert (numpy.frombuffer(got, numpy.uint8).reshape(array.shape) == array + numpy.uint8(1)).all()
            print(ask.peer_pid, ask.peer_uid, got.word >> 32, got.word & 0xFFFFFFFF)
