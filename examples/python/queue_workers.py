"""Frames go through a queue to workers, and their means come back by another. Of `multiprocessing` it differs in its import line."""

import numpy

import tranship.mp as mp


def work(frames, means):
    for number, frame in iter(frames.get, None):
        means.put((number, float(frame.mean())))


if __name__ == "__main__":
    frames, means = mp.Queue(), mp.Queue()
    workers = [mp.Process(target=work, args=(frames, means)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for number in range(20):
        frames.put((number, numpy.full((256, 256), number, numpy.float32)))
    found = dict(means.get() for _ in range(20))
    for _ in workers:
        frames.put(None)
    for worker in workers:
        worker.join()
    assert found == {number: float(number) for number in range(20)}
    print("20 frames,", sum(found.values()), "in sum")
