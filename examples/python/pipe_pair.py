"""A process that halves the frames which it gets over a pipe."""

import numpy

import tranship.mp as mp


def halve(pipe):
    while (frame := pipe.recv()) is not None:
        pipe.send(frame[::2, ::2].copy())


if __name__ == "__main__":
    here, there = mp.Pipe()
    worker = mp.Process(target=halve, args=(there,))
    worker.start()
    for number in range(3):
        here.send(numpy.full((1080, 1920, 3), number, "u1"))
        half = here.recv()
        print(number, half.shape, half.sum())
    here.send(None)
    worker.join()
