"""Items from several producers to several consumers by multiprocessing.Queue. Prints items a second."""
import multiprocessing
import os
import sys
import time


def produce(queue, start, size, seconds, core, sent):
    os.sched_setaffinity(0, {core})
    item = bytes(size)
    start.wait()
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        queue.put(item)
        count += 1
    with sent.get_lock():
        sent.value += count


def consume(queue, start, core, last):
    os.sched_setaffinity(0, {core})
    start.wait()
    came = 0.0
    while queue.get() is not None:
        came = time.monotonic()
    with last.get_lock():
        last.value = max(last.value, came)


def main():
    sides, size, seconds, core, other = (t(a) for t, a in zip((int, int, float, int, int), sys.argv[1:]))
    fork = multiprocessing.get_context("fork")
    queue, start = fork.Queue(256), fork.Barrier(2 * sides + 1)
    sent, last = fork.Value("q", 0), fork.Value("d", 0.0)
    producers = [fork.Process(target=produce, args=(queue, start, size, seconds, core, sent)) for _ in range(sides)]
    consumers = [fork.Process(target=consume, args=(queue, start, other, last)) for _ in range(sides)]
    for process in producers + consumers:
        process.start()
    start.wait()
    begun = time.monotonic()
    for process in producers:
        process.join()
    for _ in consumers:
        queue.put(None)
    for process in consumers:
        process.join()
    print(sent.value / (last.value - begun))


main()
