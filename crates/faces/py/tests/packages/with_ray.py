"""Ray: its interface for tensor transports, called in the order in which Ray calls it, without a cluster."""

import unittest

import torch
from ray.experimental.rdt.util import get_tensor_transport_manager, normalize_and_validate_tensor_transport

import tranship.mp as mp
import tranship.ray
from tranship import NoSuchName

tranship.ray.register()


def receives(inbox, outbox):
    transport = tranship.ray.Transport()
    while (question := inbox.get()) is not None:
        obj_id, metadata, is_given = question
        targets = [torch.zeros(shape, dtype=dtype) for shape, dtype in metadata.tensor_meta] if is_given else None
        tensors = transport.recv_multiple_tensors(obj_id, metadata, transport.get_communicator_metadata(None, None), targets)
        outbox.put([tensor.sum() for tensor in tensors])


class Ray(unittest.TestCase):
    def test_a_receiver_gets_the_tensors_of_an_object(self):
        self.assertEqual(normalize_and_validate_tensor_transport("tranship"), "TRANSHIP")
        source = get_tensor_transport_manager("TRANSHIP")
        self.assertEqual(source.tensor_transport_backend(), "TRANSHIP")
        self.assertTrue(source.is_one_sided())
        context = mp.get_context("fork")
        there, back = context.Queue(), context.Queue()
        process = context.Process(target=receives, args=(there, back), daemon=True)
        process.start()
        tensors = [torch.ones(5000), torch.full((3, 4), 2)]
        metadata = source.extract_tensor_transport_metadata("object", tensors)
        self.assertEqual((metadata.tensor_meta[1], metadata.tensor_device), ((torch.Size([3, 4]), torch.int64), "cpu"))
        for is_given in (False, True):
            there.put(("object", metadata, is_given))
            self.assertEqual(back.get(), [5000, 24])
        empty = source.extract_tensor_transport_metadata("empty", [])
        there.put(("empty", empty, False))
        self.assertEqual(back.get(), [])
        there.put(None)
        process.join()
        self.assertEqual(process.exitcode, 0)
        source.garbage_collect("object", metadata, tensors)
        source.garbage_collect("empty", empty, [])
        with self.assertRaises(NoSuchName):
            source.recv_multiple_tensors("object", metadata, None)


if __name__ == "__main__":
    unittest.main()
