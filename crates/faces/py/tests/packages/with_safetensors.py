"""safetensors: files that the package wrote are read once a machine."""

import doctest
import os
import tempfile
import unittest

import numpy
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

import tranship
import tranship.mp as mp
import tranship.safetensors


def loads(path, store, outbox, inbox):
    weights = tranship.safetensors.load(path, store)
    outbox.put((sorted(weights), {name: float(weight.sum()) for name, weight in weights.items()}))
    inbox.get()


class Safetensors(unittest.TestCase):
    def test_the_examples_in_docstrings(self):
        result = doctest.testmod(tranship.safetensors)
        self.assertTrue(result.attempted and not result.failed)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "weights.safetensors")
        self.weights = {
            "large": numpy.arange(50_000, dtype="f4").reshape(100, 500),
            "odd": numpy.ones((3, 7), "u1"),
            "behind": numpy.full((5,), 2.0),
            "none": numpy.zeros((0, 4), "f4"),
        }
        save_file(self.weights, self.path, {"format": "np"})

    def tearDown(self):
        self.folder.cleanup()

    def test_all_processes_have_one_memory(self):
        context = mp.get_context("fork")
        with tranship.Store.create("weights") as store:
            out, leave = context.Queue(), context.Queue()
            processes = [context.Process(target=loads, args=(self.path, store, out, leave), daemon=True) for _ in range(3)]
            for process in processes:
                process.start()
            for _ in processes:
                names, sums = out.get()
                self.assertEqual(names, sorted(self.weights))
                self.assertEqual(sums["large"], float(self.weights["large"].sum()))
            data = sum(weight.nbytes for weight in self.weights.values())
            self.assertLess(store.nbytes, data + 4096, "they lie in the store once")
            for _ in processes:
                leave.put(None)
            for process in processes:
                process.join()
                self.assertEqual(process.exitcode, 0)

    def test_arrays_are_read_only_and_equal(self):
        got = tranship.safetensors.load(self.path)
        for name, weight in self.weights.items():
            numpy.testing.assert_array_equal(got[name], weight)
            self.assertFalse(got[name].flags.writeable)

    def test_tensors(self):
        weights = {"w": torch.arange(5000, dtype=torch.bfloat16), "b": torch.ones(3), "none": torch.zeros(0, 2)}
        save_tensors(weights, self.path)
        got = tranship.safetensors.load(self.path, framework="pt")
        for name, weight in weights.items():
            self.assertTrue(torch.equal(got[name], weight), name)
        again = tranship.safetensors.load(self.path, framework="pt")
        again["b"][0] = 9
        self.assertEqual(got["b"][0], 9, "one memory")

    def test_a_file_that_changed_is_read_anew(self):
        tranship.safetensors.load(self.path)
        save_file({"other": numpy.ones(3)}, self.path)
        self.assertEqual(list(tranship.safetensors.load(self.path)), ["other"])

    def test_a_reader_that_died_is_followed_by_another(self):
        with tranship.Store.create("weights of the dead") as store:
            path = os.path.realpath(self.path)
            stat = os.stat(path)
            key = f"safetensors {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
            gone = mp.get_context("fork").Process(target=abs, args=(1,))
            gone.start()
            gone.join()
            store.put(f"{key} reader", gone.pid)
            self.assertEqual(len(tranship.safetensors.load(self.path, store)), 4)

    def test_what_is_no_such_file_is_refused(self):
        for bad in (b"", b"short", b"\xff" * 100, (100).to_bytes(8, "little") + b"x" * 200):
            with open(self.path, "wb") as file:
                file.write(bad)
            with self.assertRaisesRegex(tranship.BadArgument, "header"):
                tranship.safetensors.load(self.path)
        with self.assertRaises(FileNotFoundError):
            tranship.safetensors.load(self.path + "x")
        with self.assertRaisesRegex(ValueError, "framework"):
            save_file(self.weights, self.path)
            tranship.safetensors.load(self.path, framework="tf")


if __name__ == "__main__":
    unittest.main()
