"""torch's CPU tensors by reference: tensors born in a pool, a sharing strategy, and a `DataLoader`.

Import it after torch. From then on the sharing strategy is "tranship": tensors from 4 KiB on go through queues and pipes of `multiprocessing`,
`torch.multiprocessing` and `tranship.mp` as references. As with torch's own strategies, all processes that have a tensor can write it.
docs/mp.md says what differs.
"""

import collections.abc
import math
import multiprocessing
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing
import torch.utils.data
from torch.multiprocessing import reductions as _reductions

from . import _family
from ._items import LEAST
from ._native import Buffer, lies_in
from ._reduce import reduce_buffer

__all__ = ["STRATEGY", "DataLoader", "collate", "empty", "share", "zeros"]

STRATEGY = "tranship"
_KINDS = (torch.Tensor, torch.nn.Parameter)


def empty(*size, dtype=None):
    """Returns a tensor in memory that all processes of the program can map: it is sent without a copy. It has the bytes that the memory held
    before.

    >>> import tranship.torch
    >>> tranship.torch.empty(2, 3).shape
    torch.Size([2, 3])
    """
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], collections.abc.Iterable) else size
    dtype = dtype or torch.get_default_dtype()
    nbytes = math.prod(shape) * _itemsize(dtype)
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memoryview(_family.family().blocks.block(nbytes)), dtype=dtype).reshape(shape)


def zeros(*size, dtype=None):
    """Returns a tensor of zeros, as `empty`.

    >>> import tranship.torch
    >>> tranship.torch.zeros(2, 3).sum()
    tensor(0.)
    """
    return empty(*size, dtype=dtype).zero_()


def share(tensor):
    """Returns a tensor that is sent without a copy: itself if it is one already, else a contiguous copy.

    >>> import torch, tranship.torch
    >>> shared = tranship.torch.share(torch.ones(3))
    >>> tranship.torch.share(shared) is shared
    True
    """
    return tensor if _place(tensor) else empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def _itemsize(dtype):
    return torch.empty(0, dtype=dtype).element_size()


def _extent(tensor):
    """Returns the bytes from its first item to its last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def _place(tensor):
    """Returns the part of a buffer that a tensor lies in, if all processes that get it can write it, else None."""
    length = _extent(tensor)
    found = lies_in(tensor.data_ptr(), length) if length else None
    if found is None or found[0].trust != "full" or found[0].readonly:
        return None
    buffer, start = found
    return buffer.slice(start, start + length)


def _is_plain(tensor):
    """Whether a tensor is no more than its memory: others go as torch sends them."""
    return (
        type(tensor) in _KINDS
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not (tensor.is_conj() or tensor.is_neg())
        and (tensor.is_leaf or not tensor.requires_grad)
    )


def _rebuilt(kind, dtype, shape, stride, requires_grad, data):
    """Restores a tensor. Memory that cannot be written, as a broadcast's, is copied: torch has no read-only tensors."""
    if len(data) == 0:
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
    else:
        data = data if type(data) is Buffer and not data.readonly else bytearray(data)
        tensor = torch.frombuffer(memoryview(data), dtype=dtype).as_strided(shape, stride)
    return torch.nn.Parameter(tensor, requires_grad) if kind is torch.nn.Parameter else tensor.requires_grad_(requires_grad)


def reduced(tensor):
    """Pickles a tensor with its memory beside the pickle. `NotImplemented`: it goes as torch sends it."""
    if not _is_plain(tensor):
        return NotImplemented
    bare = tensor.detach()
    data = _place(bare)
    if data is None:
        size = bare.numel() * bare.element_size()
        if size < LEAST:
            bare = bare.contiguous()
            data = bare.reshape(-1).view(torch.uint8).numpy().tobytes() if size else b""
        else:
            bare = share(bare)
            data = _place(bare)
    return _rebuilt, (type(tensor), tensor.dtype, tuple(bare.shape), bare.stride(), tensor.requires_grad, data)


def _reduce(tensor):
    ours = reduced(tensor) if torch.multiprocessing.get_sharing_strategy() == STRATEGY else NotImplemented
    return _reductions.reduce_tensor(tensor) if ours is NotImplemented else ours


def _stacked(tensors):
    first = tensors[0]
    if any(type(one) is not torch.Tensor or one.shape != first.shape or one.dtype != first.dtype for one in tensors):
        return torch.utils.data.default_collate(tensors)
    return torch.stack(tensors, out=empty(len(tensors), *first.shape, dtype=first.dtype))


def collate(batch):
    """Collates as `torch.utils.data.default_collate` does, into memory that is sent without a copy.

    >>> import torch, tranship.torch
    >>> images, labels = tranship.torch.collate([(torch.ones(3, 4), 0), (torch.ones(3, 4), 1)])
    >>> images.shape, labels
    (torch.Size([2, 3, 4]), tensor([0, 1]))
    """
    first = batch[0]
    kind = type(first)
    if isinstance(first, torch.Tensor):
        return _stacked([one.detach() for one in batch]) if _is_plain(first) else torch.utils.data.default_collate(batch)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and first.dtype.kind in "biufc":
        return _stacked([torch.as_tensor(one) for one in batch])
    if isinstance(first, collections.abc.Mapping) and kind is dict:
        return {key: collate([one[key] for one in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*map(collate, zip(*batch)))
    if kind in (list, tuple) and all(len(one) == len(first) for one in batch):
        return [collate(parts) for parts in zip(*batch)]
    return torch.utils.data.default_collate(batch)


class DataLoader(torch.utils.data.DataLoader):
    """torch's `DataLoader`, whose workers write batches into memory that the parent reads in place: nothing goes through /dev/shm.

    All arguments are those of torch's class. Without a `collate_fn` batches are collated into the pool; what another one returns is copied
    there once. Batches can be written. With `pin_memory=True` torch copies each batch into pinned memory, as with its own class.

    >>> import torch, tranship.torch
    >>> [batch.shape for batch in tranship.torch.DataLoader(torch.ones(5, 2), batch_size=3)]
    [torch.Size([3, 2]), torch.Size([2, 2])]
    """

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        if self.num_workers == 0:
            return
        from . import mp

        given = self.multiprocessing_context
        self.multiprocessing_context = mp.get_context(given.get_start_method() if given else multiprocessing.get_start_method())
        if self.collate_fn is torch.utils.data.default_collate:
            self.collate_fn = collate


torch.multiprocessing._all_sharing_strategies.add(STRATEGY)
torch.multiprocessing.set_sharing_strategy(STRATEGY)
ForkingPickler.register(Buffer, reduce_buffer)
for _kind in _KINDS:
    ForkingPickler.register(_kind, _reduce)
