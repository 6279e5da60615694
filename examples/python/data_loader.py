"""Two workers load batches of images. Of `torch.utils.data` it differs in its import line."""

import torch.utils.data

from tranship.torch import DataLoader


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((3, 64, 64), float(index)), index


if __name__ == "__main__":
    found = 0
    for images, labels in DataLoader(Images(), batch_size=16, num_workers=2):
        assert (images[:, 0, 0, 0] == labels).all()
        found += len(labels)
    print(found, "images of", tuple(images.shape[1:]))
