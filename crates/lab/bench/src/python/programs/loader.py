"""One run of a `DataLoader` with two workers over images of 224x224 points: torch's own, or `tranship.torch.DataLoader`. Says a JSON list of what it
measured: the time between two batches.

    python loader.py '{"variant": ..., "batch": 32, ...}'

`copied`: an image is there already, and a worker only copies it into its batch. `decoded`: a worker scales and normalizes each image first.
"""

import json
import os
import sys
import time
from types import SimpleNamespace

import torch
from run import measured

WORKERS = 2
BATCH = 32
SIDE = 224
LARGE = 256
# Images that a data set has.
IMAGES = 64
# Batches of an epoch, of which there are as many as the time allows.
BATCHES = 32
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).reshape(3, 1, 1)


class Images(torch.utils.data.Dataset):
    """Images that are there, as items of a type."""

    def __init__(self, dtype):
        self.all = torch.arange(IMAGES * 3 * SIDE * SIDE).reshape(IMAGES, 3, SIDE, SIDE).to(dtype)

    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return self.all[index % IMAGES], index


class Decoded(Images):
    """Images that are worked at."""

    def __init__(self):
        self.all = torch.arange(IMAGES * 3 * LARGE * LARGE).reshape(IMAGES, 3, LARGE, LARGE).to(torch.uint8)

    def __getitem__(self, index):
        image = self.all[index % IMAGES].float().div_(255)
        image = torch.nn.functional.interpolate(image[None], size=(SIDE, SIDE), mode="bilinear", antialias=True)[0]
        return (image - MEAN) / DEVIATION, index


DATA = {"copied": lambda: Images(torch.uint8), "copied-f4": lambda: Images(torch.float32), "decoded": Decoded}


def loader(case, data):
    if case.variant == "torch":
        kind = torch.utils.data.DataLoader
    else:
        import tranship.torch

        kind = tranship.torch.DataLoader
    # Forked by both: in Python 3.14 no more the default.
    return kind(data, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True, multiprocessing_context="fork")


def batches(case, op):
    """The times between two batches. The first epoch starts the workers, and is not counted."""
    clock, samples = time.perf_counter_ns, []
    budget = case.sample_ms * 1_000_000
    loads, begun = loader(case, DATA[op]()), None
    while begun is None or clock() - begun < budget:
        before = None
        for number, (images, labels) in enumerate(loads):
            if labels[0] != number * BATCH or images.shape != (BATCH, 3, SIDE, SIDE):
                raise SystemExit(f"batch {number} begins with item {labels[0]}")
            images[-1, -1, -1, -1].item()
            now = clock()
            if begun is not None and before is not None:
                samples.append(now - before)
            before = now
        begun = begun or clock()
    return samples


def main():
    case = SimpleNamespace(**json.loads(sys.argv[1]))
    # Parent and workers run where they like.
    os.sched_setaffinity(0, range(os.cpu_count()))
    torch.set_num_threads(1)
    print(json.dumps([measured(op, batches(case, op)) for op in DATA]))


if __name__ == "__main__":
    main()
