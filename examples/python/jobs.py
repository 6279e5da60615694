"""A queue. `jobs.py produce NAME N` puts N jobs into it and waits until all are done; `jobs.py consume NAME N` takes N of them. Any
number of either may run."""

import sys

import tranship


def produce(domain: tranship.Domain, name: str, count: int) -> None:
    with domain.produce(name) as jobs:
        for number in range(count):
            job = jobs.alloc(1000)
            memoryview(job)[:] = bytes([number % 256]) * 1000
            jobs.send(job, word=number)
        jobs.wait_done()  # taken, and acknowledged


def consume(domain: tranship.Domain, name: str, count: int) -> None:
    with domain.consume(name) as jobs:
        for _ in range(count):
            with jobs.recv() as job:  # acknowledged at the end; until then another gets it if this process dies
                print(f"job {job.word} of {job.payload.nbytes} bytes")


def main() -> None:
    with tranship.connect("jobs.py") as domain:
        match sys.argv[1:]:
            case ["produce", name, count]:
                produce(domain, name, int(count))
            case ["consume", name, count]:
                consume(domain, name, int(count))
            case _:
                sys.exit(__doc__)


main()
