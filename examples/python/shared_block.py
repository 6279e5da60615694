"""Workers write their parts of one block of shared memory. Of `multiprocessing` it differs in its import line."""

import numpy

from tranship.mp import Process, shared_memory


def fill(name, part, parts):
    block = shared_memory.SharedMemory(name)
    array = numpy.frombuffer(block.buf, numpy.int64, count=80_000)
    array[part::parts] = part
    del array
    block.close()


if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=80_000 * 8)
    workers = [Process(target=fill, args=(block.name, part, 4)) for part in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    array = numpy.frombuffer(block.buf, numpy.int64, count=80_000)
    assert (array == numpy.arange(80_000) % 4).all()
    print("the sum is", array.sum())
    del array
    block.close()
    block.unlink()
