"""A tensor transport for Ray: actors of one machine get each other's CPU tensors by reference.

    tranship.ray.register()                       # before the actors are made

    @ray.remote(enable_tensor_transport=True)
    class Reader:
        @ray.method(tensor_transport="tranship")
        def frame(self): return torch.ones(1 << 20)

Ray's interface for transports is alpha. Processes that have a tensor can write it.
"""

import dataclasses

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata, register_tensor_transport

from . import _family, _items
from .torch import share

__all__ = ["Transport", "register"]

NAME = "TRANSHIP"


@dataclasses.dataclass
class _Metadata(TensorTransportMetadata):
    """Says where the tensors lie, too."""

    place: tuple = ()


class Transport(TensorTransportManager):
    """The source keeps its tensors in the store of its program until Ray says that they are not needed; receivers get them there."""

    def tensor_transport_backend(self):
        """Returns the name of the transport."""
        return NAME

    @staticmethod
    def is_one_sided():
        """Only the receiver acts."""
        return True

    @staticmethod
    def can_abort_transport():
        """A get that is given up leaves nobody blocked."""
        return True

    def actor_has_tensor_transport(self, actor):
        """Actors of this machine have it. Ray does not tell here where an actor is."""
        return True

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        """Puts the tensors of an object into the store of this process."""
        tensors = list(rdt_object)
        here = _family.family()
        if tensors:
            here.store.put(obj_id.encode(), _items.packed([share(one) for one in tensors], here.pool))
        return _Metadata([(one.shape, one.dtype) for one in tensors], "cpu" if tensors else None, here.place)

    def get_communicator_metadata(self, src_actor, dst_actor, backend=None):
        """Returns nothing: the tensors' metadata says all."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        """Returns the tensors where they lie, or in `target_buffers`."""
        if not tensor_transport_metadata.tensor_meta:
            return []
        store = _family.at(tuple(tensor_transport_metadata.place)).store
        tensors = _items.unpacked(store.get(obj_id.encode(), 0))
        if not target_buffers:
            return tensors
        return [target.copy_(tensor) for target, tensor in zip(target_buffers, tensors)]

    def send_multiple_tensors(self, tensors, tensor_transport_metadata, communicator_metadata):
        """Is not called: the transport is one-sided."""
        raise NotImplementedError("a one-sided transport sends nothing")

    def garbage_collect(self, obj_id, tensor_transport_meta, tensors):
        """Forgets the tensors of an object. Receivers keep theirs."""
        if tensors:
            _family.family().store.delete(obj_id.encode())

    def abort_transport(self, obj_id, communicator_metadata):
        """Does nothing: no call waits for another."""


def register():
    """Makes the transport known to Ray, as "tranship"."""
    register_tensor_transport(NAME, ["cpu"], Transport, torch.Tensor)
