"""An executor with large arguments and results. Of `concurrent.futures` it differs in its import line."""

import numpy

from tranship import Executor as ProcessPoolExecutor


def product(left, right):
    return left @ right


if __name__ == "__main__":
    rng = numpy.random.default_rng(7)
    pairs = [(rng.random((200, 200)), rng.random((200, 200))) for _ in range(6)]
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(product, left, right) for left, right in pairs]
        products = [future.result() for future in futures]
    assert all(numpy.allclose(found, left @ right) for found, (left, right) in zip(products, pairs))
    print(len(products), "products of", products[0].shape)
