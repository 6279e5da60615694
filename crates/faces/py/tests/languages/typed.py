"""Messages of the type `Frame`: `typed.py THIRD offer WAY NAME` offers one again and again, `typed.py THIRD take WAY NAME` takes one and
prints it, or why not. WAY is topic, queue or service. THIRD is the third field."""

import ctypes
import dataclasses
import signal
import sys

import tranship

third, what, way, name = sys.argv[1:]
Frame = dataclasses.make_dataclass(
    "Frame", [("taken_ns", ctypes.c_uint64), ("width", ctypes.c_uint32), (third, ctypes.c_uint32)]
)
TEXT, FRAME = tranship.message_type(Frame), tranship.pack(Frame(1, 640, 480))


def offer(domain):
    if way == "topic":
        publisher = domain.publish(name, history=1, message_type=TEXT)
        publisher.send(FRAME)
        signal.pause()
    if way == "queue":
        producer = domain.produce(name, message_type=TEXT)
        while True:
            producer.send(FRAME)
            producer.wait_done()
    for request in domain.serve(name, types=(TEXT, TEXT)):
        request.reply(bytes(request.payload))


def take(domain):
    if way == "topic":
        return domain.subscribe(name, message_type=TEXT).recv()
    if way == "queue":
        with domain.consume(name, message_type=TEXT) as consumer, consumer.recv() as item:
            return item.payload
    with domain.client(name, types=(TEXT, TEXT)) as client:
        return client.call(FRAME)


with tranship.connect(helper_thread=True) as domain:
    if what == "offer":
        offer(domain)
    try:
        print(*dataclasses.astuple(tranship.unpack(Frame, take(domain))))
    except tranship.Error as error:
        print(error.kind, error)
