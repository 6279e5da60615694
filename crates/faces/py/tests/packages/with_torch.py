"""torch: tensors by reference through queues, pipes and pools, the sharing strategy, and the DataLoader."""

import collections
import contextlib
import doctest
import io
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
import torch.utils.data

import tranship.mp as mp
import tranship.torch
from tranship import _family

Pair = collections.namedtuple("Pair", "image label")


def layouts():
    base = torch.arange(24000, dtype=torch.float32).reshape(20, 30, 40)
    return {
        "contiguous": base,
        "transposed": base.permute(2, 0, 1),
        "strided": base[::2, 5:30:3],
        "part": base[3:],
        "expanded": torch.ones(1).expand(5000),
        "0-d": torch.tensor(2.5),
        "no items": base[:0],
        "small": torch.arange(5),
        "bool": base > 7000,
        "bfloat16": base.to(torch.bfloat16),
        "complex": torch.complex(base, base),
        "born": tranship.torch.share(base),
        "part of one born": tranship.torch.share(base)[2:7, ::3],
        "a leaf": torch.ones(3000, requires_grad=True),
        "a parameter": torch.nn.Parameter(torch.ones(3000)),
        "a parameter without gradient": torch.nn.Parameter(torch.ones(3000), False),
    }


def is_same(left, right):
    kind = type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
    return kind and left.requires_grad == right.requires_grad and bool((left.detach() == right.detach()).all())


def echo(inbox, outbox):
    while (item := inbox.get()) is not None:
        outbox.put(item)


def adds_one(inbox, outbox):
    while (tensor := inbox.get()) is not None:
        tensor.add_(1)
        outbox.put("done")


def makes(outbox, inbox):
    outbox.put(torch.full((5000,), 7.0))
    inbox.get()


def mapping_of(tensor):
    """Returns the name of the file that a tensor's memory is mapped from."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= tensor.data_ptr() < high:
                return line.split(None, 5)[5].strip() if len(line.split(None, 5)) > 5 else ""
    raise AssertionError("mapped nowhere")


def doubled(tensor):
    return tensor * 2


class Images(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3, 40, 40), float(index)), index


class Deep(Images):
    def __getitem__(self, index):
        image = torch.full((3, 40, 40), float(index))
        return {"pair": Pair(image, index), "list": [image.numpy(), str(index)], "weight": numpy.float64(index)}


def as_it_is(batch):
    return torch.stack([image for image, _ in batch]), [label for _, label in batch]


class Broken(Images):
    def __getitem__(self, index):
        if index == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def ran(text, says):
    multiprocessing.set_start_method("fork", force=True)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(text, {"__name__": "__main__"})
    says.send(said.getvalue())


def output(text):
    """Runs a program in a forked child, which has torch: an import takes seconds."""
    hears, says = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=ran, args=(text, says))
    process.start()
    says.close()
    try:
        return hears.recv()
    finally:
        process.join()


class Tensors(unittest.TestCase):
    def test_the_examples_in_docstrings(self):
        result = doctest.testmod(tranship.torch)
        self.assertTrue(result.attempted and not result.failed)

    def through(self, context, there, back):
        process = context.Process(target=echo, args=(there, back), daemon=True)
        process.start()
        for name, tensor in layouts().items():
            there.put({"deep": [tensor]})
            with self.subTest(name):
                self.assertTrue(is_same(tensor, back.get()["deep"][0]))
        there.put(None)
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_a_queue_carries_every_layout(self):
        for method in ("spawn", "fork"):
            with self.subTest(method):
                context = mp.get_context(method)
                self.through(context, context.Queue(), context.Queue())

    def test_torchs_own_queue_carries_references(self):
        context = multiprocessing.get_context("fork")
        self.through(context, context.Queue(), context.Queue())

    def test_all_that_have_a_tensor_write_it(self):
        context = mp.get_context("fork")
        there, back = context.Queue(), context.Queue()
        process = context.Process(target=adds_one, args=(there, back), daemon=True)
        process.start()
        tensor = tranship.torch.zeros(5000)
        there.put(tensor)
        self.assertEqual(back.get(), "done")
        self.assertTrue((tensor == 1).all())
        foreign = torch.zeros(5000)
        there.put(foreign)
        self.assertEqual(back.get(), "done")
        self.assertTrue((foreign == 0).all(), "a copy was sent")
        there.put(None)
        process.join()

    def test_a_tensor_outlives_the_process_that_made_it(self):
        context = mp.get_context("fork")
        out, leave, there, back = (context.Queue() for _ in range(4))
        maker = context.Process(target=makes, args=(out, leave), daemon=True)
        maker.start()
        tensor = out.get()
        maker.kill()
        maker.join()
        self.assertTrue((tensor == 7).all())
        reader = context.Process(target=adds_one, args=(there, back), daemon=True)
        reader.start()
        there.put(tensor)  # its memory is a dead process's: a copy goes, which can be written
        self.assertEqual(back.get(), "done")
        there.put(None)
        reader.join()
        self.assertEqual(reader.exitcode, 0)

    def test_pools_and_executors_take_tensors(self):
        tensor = tranship.torch.zeros(5000) + 1
        with mp.get_context("fork").Pool(1) as pool:
            self.assertTrue((pool.map(doubled, [tensor])[0] == 2).all())
        with mp.Executor(1, mp.get_context("fork")) as executor:
            self.assertTrue((executor.submit(doubled, tensor).result() == 2).all())

    def test_another_strategy_is_torchs(self):
        self.assertEqual(torch.multiprocessing.get_sharing_strategy(), "tranship")
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
        try:
            sent = multiprocessing.reduction.ForkingPickler.dumps(torch.ones(5000))
            self.assertNotIn(b"tranship", bytes(sent))
        finally:
            torch.multiprocessing.set_sharing_strategy("tranship")
        sent = multiprocessing.reduction.ForkingPickler.dumps(torch.ones(5000))
        self.assertIn(b"tranship", bytes(sent))
        self.assertTrue((pickle.loads(sent) == 1).all())

    def test_a_tensor_that_needs_its_graph_is_refused_as_torch_does(self):
        with self.assertRaisesRegex(RuntimeError, "non-leaf"):
            mp.Queue().put(torch.ones(5000, requires_grad=True) * 2)

    def test_a_value_in_a_store_is_one_memory(self):
        with tranship.Store.create("tensors", domain=_family.family().domain) as store:
            store.put("weights", {"w": tranship.torch.zeros(5000)})
            store.get("weights")["w"][3] = 5
            self.assertEqual(store.get("weights")["w"][3], 5)


class DataLoader(unittest.TestCase):
    def alike(self, left, right):
        self.assertIs(type(left), type(right))
        if isinstance(left, torch.Tensor):
            self.assertTrue(is_same(left, right))
        elif isinstance(left, dict):
            self.assertEqual(left.keys(), right.keys())
            for key in left:
                self.alike(left[key], right[key])
        elif isinstance(left, (list, tuple)):
            self.assertEqual(len(left), len(right))
            for one, other in zip(left, right):
                self.alike(one, other)
        else:
            self.assertEqual(left, right)

    def test_batches_are_those_of_torchs_class(self):
        for dataset in (Images(20), Deep(10)):
            for named in ({"num_workers": 2}, {"num_workers": 0}, {"num_workers": 1, "persistent_workers": True}, {"num_workers": 1, "batch_size": None}):
                named = {"batch_size": 4, **named}
                with self.subTest(type(dataset).__name__, **named):
                    ours = list(tranship.torch.DataLoader(dataset, **named))
                    theirs = list(torch.utils.data.DataLoader(dataset, **{**named, "num_workers": 0, "persistent_workers": False}))
                    self.alike(theirs, ours)

    def test_workers_write_batches_into_a_pool(self):
        for images, _labels in tranship.torch.DataLoader(Images(16), 8, num_workers=2):
            self.assertIn("memfd:", mapping_of(images))
            images.mul_(2)  # as with torch's class

    def test_a_collate_of_the_users_own(self):
        for images, labels in tranship.torch.DataLoader(Images(16), 8, num_workers=1, collate_fn=as_it_is):
            self.assertEqual(images[:, 0, 0, 0].tolist(), labels)
            self.assertIn("memfd:", mapping_of(images))

    def test_a_start_method_of_the_users_own(self):
        loader = tranship.torch.DataLoader(Images(16), 8, num_workers=1, multiprocessing_context="spawn")
        self.assertEqual(torch.cat([labels for _, labels in loader]).tolist(), list(range(16)))

    def test_a_worker_that_dies_is_told(self):
        with self.assertRaisesRegex(RuntimeError, "killed by signal|exited unexpectedly"):
            list(tranship.torch.DataLoader(Broken(16), 4, num_workers=1))

    def test_the_example_differs_in_its_import_line_alone(self):
        text = (pathlib.Path(__file__).resolve().parents[5] / "examples/python/data_loader.py").read_text()
        line = "from tranship.torch import DataLoader\n"
        self.assertEqual(text.count(line), 1)
        said = [output(text), output(text.replace(line, "from torch.utils.data import DataLoader\n"))]
        self.assertEqual(said, ["64 images of (3, 64, 64)\n"] * 2)

    def test_the_program_of_the_page(self):
        page = pathlib.Path(__file__).resolve().parents[5] / "docs/mp.md"
        program = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)[2]
        self.assertIn("tranship.torch.DataLoader", program)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "program.py"
            file.write_text(program)
            subprocess.run([sys.executable, file], check=True)


if __name__ == "__main__":
    unittest.main()
