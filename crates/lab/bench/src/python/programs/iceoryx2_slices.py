"""`iceoryx2-python`: publish-subscribe of slices, an array over each loan; its event service when blocking. `iceoryx2-python-foreign`: the
array is copied into the loan. As many ports and nodes as there are, no history, no overflow, memory made beforehand."""

import ctypes

import iceoryx2 as iox2
import numpy
from arrays import WORD, Own, read, words, write

# Of bytes: of wider elements 0.10 gives views that are too long.
Payload = iox2.Slice[ctypes.c_uint8]


def array(slice):
    return numpy.frombuffer(slice.as_memory_view(), WORD)


class Side:
    def __init__(self, case, shared):
        iox2.set_log_level(iox2.LogLevel.Error)
        config = iox2.config.default()
        config.global_cfg.prefix = iox2.FileName.new(f"tranship_bench_{case.run}_")
        off = iox2.SignalHandlingMode.Disabled
        self.node = iox2.NodeBuilder.new().config(config).signal_handling_mode(off).create(iox2.ServiceType.Ipc)
        self.payload = case.payload
        out, back = ("ping", "pong") if case.role == 0 else ("pong", "ping")
        publisher = self.data(out).publisher_builder().max_loaned_samples(1).initial_max_slice_len(self.payload)
        self.publisher = publisher.allocation_strategy(iox2.AllocationStrategy.Static).create()
        self.subscriber = self.data(back).subscriber_builder().buffer_size(2).create()
        self.blocks = case.wait == "block"
        if self.blocks:
            self.notifier = self.event(out).notifier_builder().create()
            self.listener = self.event(back).listener_builder().create()
        case.meet()
        # Both are there: connect now, not at the first message.
        self.publisher.update_connections()
        self.own = Own(case) if case.variant == "foreign" else None

    def service(self, name):
        return self.node.service_builder(iox2.ServiceName.new(name))

    def data(self, name):
        service = self.service(f"{name}/data").publish_subscribe(Payload).max_publishers(1).max_subscribers(1)
        service = service.max_nodes(2).history_size(0).subscriber_max_buffer_size(2)
        return service.subscriber_max_borrowed_samples(2).enable_safe_overflow(False).open_or_create()

    def event(self, name):
        return self.service(f"{name}/event").event().max_notifiers(1).max_listeners(1).max_nodes(2).open_or_create()

    def send(self, stamp):
        loan = self.publisher.loan_slice_uninit(self.payload)
        inside = array(loan.payload())
        if self.own:
            inside[:] = self.own.with_stamp(stamp, self.touched)
        else:
            write(inside, stamp, self.touched)
        loan.assume_init().send()
        if self.blocks:
            self.notifier.notify()

    def recv(self):
        while (sample := self.subscriber.receive()) is None:
            if self.blocks:
                self.listener.blocking_wait()
        stamp = read(array(sample.payload()), self.touched)
        sample.delete()
        return stamp

    def close(self):
        del self.publisher, self.subscriber, self.node
        if self.blocks:
            del self.notifier, self.listener
