"""Reads a channel to its end, and says how many messages came and what their bytes add up to."""

import sys

import tranship

messages = total = 0
with tranship.connect() as domain, domain.receiver(sys.argv[1]) as receiver:
    for message in receiver:
        messages += 1
        total += sum(memoryview(message))
print(messages, total)
