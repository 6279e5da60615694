"""Reads a channel to its end, and says how many messages came and what their bytes add up to."""

import sys

import tranship

messages = total = 0
with tranship.connect() as domain, domain.open(sys.argv[1], tranship.Receiver) as receiver:
    for message in receiver:
        messages += 1
        total += sum(memoryview(message))
print(messages, total)
