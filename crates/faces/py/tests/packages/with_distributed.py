"""Dask: the serialization family "tranship"."""

import doctest
import unittest

import distributed
import numpy
from distributed.protocol import deserialize, serialize

import tranship.dask
import tranship.mp as mp

FAMILIES = ["tranship", "dask", "pickle"]
tranship.dask.register()


def loads(inbox, outbox):
    tranship.dask.register()
    while (message := inbox.get()) is not None:
        value = deserialize(*message, deserializers=FAMILIES)
        outbox.put((value.sum(), value.flags.writeable))


class Dask(unittest.TestCase):
    def test_the_examples_in_docstrings(self):
        result = doctest.testmod(tranship.dask)
        self.assertTrue(result.attempted and not result.failed)

    def test_large_values_go_as_a_reference_and_small_ones_do_not(self):
        context = mp.get_context("fork")
        there, back = context.Queue(), context.Queue()
        process = context.Process(target=loads, args=(there, back), daemon=True)
        process.start()
        header, frames = serialize(numpy.ones(100_000), serializers=FAMILIES)
        self.assertEqual((header["serializer"], frames), ("tranship", []))
        there.put((header, frames))
        self.assertEqual(back.get(), (100_000, False))
        there.put(None)
        process.join()
        self.assertEqual(process.exitcode, 0)
        header, frames = serialize({"small": 1}, serializers=FAMILIES)
        self.assertEqual(header["serializer"], "pickle")
        self.assertEqual(deserialize(header, frames, deserializers=FAMILIES), {"small": 1})

    def test_a_cluster_takes_the_family(self):
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster, distributed.Client(cluster, serializers=FAMILIES, deserializers=FAMILIES) as client:
            array = numpy.ones(100_000)
            future = client.scatter(array)
            self.assertEqual(client.submit(numpy.sum, future).result(), 100_000)


if __name__ == "__main__":
    unittest.main()
