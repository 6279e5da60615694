"""A topic. `topic.py publish NAME N` publishes N frames to whatever number of subscribers, once one is there; `topic.py view NAME`
prints what comes until the publisher ends the topic."""

import sys

import tranship

FRAME = 4096


def publish(domain: tranship.Domain, name: str, count: int) -> None:
    with domain.publish(name, history=16) as camera:
        camera.wait_for(1)
        for number in range(count):
            frame = camera.alloc(FRAME)
            memoryview(frame)[:] = bytes([number % 256]) * FRAME
            camera.send(frame, word=number)  # one line, however many subscribers


def view(domain: tranship.Domain, name: str) -> None:
    with domain.subscribe(name) as video:
        for frame in video:  # the publisher's own pages, read-only here
            print(f"frame {frame.word} of {frame.nbytes} bytes: {frame[0]}")
        print(f"missed {video.missed}")


def main() -> None:
    with tranship.connect("topic.py") as domain:
        match sys.argv[1:]:
            case ["publish", name, count]:
                publish(domain, name, int(count))
            case ["view", name]:
                view(domain, name)
            case _:
                sys.exit(__doc__)


main()
