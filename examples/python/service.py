"""A service. `service.py serve NAME N` answers N requests with the sum of their bytes; `service.py call NAME TEXT` calls it, and
prints the answer."""

import sys

import tranship


def serve(domain: tranship.Domain, name: str, count: int) -> None:
    with domain.serve(name) as service:
        for _ in range(count):
            with service.recv() as request:  # an exception here fails the call, and no other
                total = sum(memoryview(request.payload)) if request.payload.nbytes else 0
                request.reply(total.to_bytes(8, sys.byteorder))


def call(domain: tranship.Domain, name: str, text: str) -> None:
    with domain.client(name, timeout=10) as client:
        asks = client.alloc(len(text))
        memoryview(asks)[:] = text.encode()
        print(int.from_bytes(bytes(client.call(asks, timeout=10)), sys.byteorder))


def main() -> None:
    with tranship.connect("service.py") as domain:
        match sys.argv[1:]:
            case ["serve", name, count]:
                serve(domain, name, int(count))
            case ["call", name, text]:
                call(domain, name, text)
            case _:
                sys.exit(__doc__)


main()
