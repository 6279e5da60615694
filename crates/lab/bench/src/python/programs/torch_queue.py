"""Tensors of torch through queues: `torch.multiprocessing.Queue` with torch's own sharing strategy, and `tranship.mp.Queue`, whose tensors are born
in a pool, or are the process's own."""

import torch
from arrays import read as read_array
from arrays import words


def shared(case):
    if case.variant == "torch":
        import torch.multiprocessing as torch_mp

        context = torch_mp.get_context("fork")
        return context.Queue(), context.Queue()
    import tranship.mp as mp

    return mp.Queue(), mp.Queue()


class Side:
    def __init__(self, case, shared):
        torch.set_num_threads(1)
        self.out, self.back = shared[case.role], shared[1 - case.role]
        self.words = words(case)
        self.own = None if case.variant == "born" else torch.zeros(self.words, dtype=torch.int64)

    def send(self, stamp):
        tensor = self.own
        if tensor is None:
            from tranship.torch import empty

            tensor = empty(self.words, dtype=torch.int64)
        elif tensor.is_shared():
            # torch has moved it to shared memory, which the receiver may still read.
            tensor = torch.zeros(self.words, dtype=torch.int64)
        signed = stamp - (1 << 64) if stamp >> 63 else stamp
        if self.touched:
            tensor.fill_(signed)
        else:
            tensor[0] = signed
        self.out.put(tensor)

    def recv(self):
        return read_array(self.back.get().numpy().view("u8"), self.touched)

    def close(self):
        self.out.close()
        self.out.join_thread()
