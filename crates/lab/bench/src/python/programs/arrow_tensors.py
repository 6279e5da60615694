"""pyarrow's tensors as IPC: written into the bytes of a pipe, as pyarrow alone would, and into a buffer of a pool that a queue carries."""

import pyarrow
from arrays import Own, read


def shared(case):
    if case.variant == "pipe":
        return case.context.Pipe()
    import tranship.mp as mp

    return mp.Queue(), mp.Queue()


class Side:
    def __init__(self, case, shared):
        self.own, self.is_pipe = Own(case), case.variant == "pipe"
        if self.is_pipe:
            self.pipe = shared[case.role]
        else:
            self.out, self.back = shared[case.role], shared[1 - case.role]

    def send(self, stamp):
        tensor = pyarrow.Tensor.from_numpy(self.own.with_stamp(stamp, self.touched))
        size = pyarrow.ipc.get_tensor_size(tensor)
        if self.is_pipe:
            sink = pyarrow.BufferOutputStream()
            pyarrow.ipc.write_tensor(tensor, sink)
            return self.pipe.send_bytes(sink.getvalue())
        from tranship import _family

        buffer = _family.family().pool.alloc(size)
        with memoryview(buffer) as view:
            sink = pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(view))
            pyarrow.ipc.write_tensor(tensor, sink)
            sink.close()
            del sink
        self.out.put(buffer)

    def recv(self):
        data = self.pipe.recv_bytes() if self.is_pipe else self.back.get()
        return read(pyarrow.ipc.read_tensor(pyarrow.py_buffer(data)).to_numpy(), self.touched)

    def close(self):
        if not self.is_pipe:
            self.out.close()
