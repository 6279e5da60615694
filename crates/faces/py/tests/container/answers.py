"""Inside: as answers.c. The interpreter there has no numpy."""

import os

import tranship

with tranship.connect(autostart=False) as domain, domain.pool("answers", 16 << 20) as pool:
    with domain.open("ask", tranship.Receiver) as asks, domain.open("answer", tranship.Sender) as answers:
        asked = asks.recv()
        answer = pool.copy(bytes(asked).translate(bytes((n + 1) % 256 for n in range(256))))
        answers.send(answer, os.getpid() << 32 | os.getuid())
        answers.wait_taken()
