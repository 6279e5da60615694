"""A pool maps a function over large arrays. Of `multiprocessing` it differs in its import line."""

import numpy

import tranship.mp as mp


def squared(block):
    return block**2


if __name__ == "__main__":
    blocks = [numpy.arange(100_000) + 100_000 * number for number in range(8)]
    with mp.Pool(2) as pool:
        squares = pool.map(squared, blocks)
        late = pool.apply_async(squared, (blocks[1],))
        assert (late.get() == squares[1]).all()
    assert all((square == block**2).all() for square, block in zip(squares, blocks))
    print(len(squares), "blocks, the last square is", squares[-1][-1])
