"""joblib: the backend "tranship"."""

import doctest
import unittest

import joblib
import numpy

import tranship.joblib
import tranship.mp as mp

tranship.joblib.register()
with_backend = getattr(joblib, "parallel_config", joblib.parallel_backend)


def looks(array, factor):
    return array.flags.writeable, array * factor


def fails(number):
    if number == 3:
        raise ArithmeticError("three")
    return number


def nested(number):
    return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-number) for _ in range(3)))


class Joblib(unittest.TestCase):
    def test_the_examples_in_docstrings(self):
        result = doctest.testmod(tranship.joblib)
        self.assertTrue(result.attempted and not result.failed)

    def test_arguments_and_results_are_references(self):
        array = mp.array(numpy.ones(100_000))
        with with_backend("tranship", n_jobs=2):
            got = joblib.Parallel()(joblib.delayed(looks)(array, factor) for factor in range(6))
        for factor, (writeable, result) in enumerate(got):
            self.assertFalse(writeable, "the sender's memory")
            self.assertFalse(result.flags.writeable, "the worker's memory")
            self.assertTrue((result == factor).all())

    def test_many_small_calls_keep_their_order(self):
        with with_backend("tranship", n_jobs=2):
            self.assertEqual(joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(500)), list(range(500)))

    def test_an_error_arrives(self):
        with with_backend("tranship", n_jobs=2), self.assertRaisesRegex(ArithmeticError, "three"):
            joblib.Parallel()(joblib.delayed(fails)(number) for number in range(10))

    def test_one_worker_and_none(self):
        with with_backend("tranship", n_jobs=1):
            self.assertEqual(joblib.Parallel()([joblib.delayed(abs)(-1)]), [1])
        with with_backend("tranship", n_jobs=2), self.assertRaisesRegex(ValueError, "n_jobs"):
            joblib.Parallel(n_jobs=0)([joblib.delayed(abs)(-1)])

    def test_a_worker_that_calls_it_again_works_alone(self):
        with with_backend("tranship", n_jobs=2):
            self.assertEqual(joblib.Parallel()(joblib.delayed(nested)(number) for number in range(4)), [0, 3, 6, 9])


if __name__ == "__main__":
    unittest.main()
