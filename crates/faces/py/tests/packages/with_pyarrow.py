"""pyarrow: tables in pools, and pandas' frames through them."""

import doctest
import unittest

import numpy
import pandas
import pyarrow

import tranship.arrow
import tranship.mp as mp
from tranship import _family


def table():
    return pyarrow.table({"n": numpy.arange(50_000), "x": numpy.linspace(0, 1, 50_000), "s": ["text", None] * 25_000})


def sums(inbox, outbox):
    while (buffer := inbox.get()) is not None:
        got = tranship.arrow.read(buffer)
        outbox.put((got.num_rows, int(numpy.sum(got["n"].to_numpy())), got["s"].null_count))


class Arrow(unittest.TestCase):
    def test_the_examples_in_docstrings(self):
        result = doctest.testmod(tranship.arrow)
        self.assertTrue(result.attempted and not result.failed)

    def test_a_table_is_read_where_it_lies(self):
        made = table()
        buffer = tranship.arrow.write(made)
        self.assertTrue(buffer.readonly)
        got = tranship.arrow.read(buffer)
        self.assertTrue(got.equals(made))
        column = got["n"].chunk(0).buffers()[1]
        low = numpy.frombuffer(buffer, "u1").__array_interface__["data"][0]
        self.assertTrue(low < column.address < low + len(buffer), "the column is the buffer's memory")
        self.assertFalse(got["n"].to_numpy().flags.writeable)
        del got
        with self.assertRaises(BufferError):
            buffer.release()  # the column is there

    def test_it_goes_to_another_process(self):
        context = mp.get_context("fork")
        there, back = context.Queue(), context.Queue()
        process = context.Process(target=sums, args=(there, back), daemon=True)
        process.start()
        there.put(tranship.arrow.write(table()))
        self.assertEqual(back.get(), (50_000, 49_999 * 25_000, 25_000))
        there.put(None)
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_a_record_batch_and_a_pool_of_the_users_own(self):
        with _family.family().domain.pool("tables", 8 << 20) as pool:
            batch = table().to_batches()[0]
            buffer = tranship.arrow.write(batch, pool)
            self.assertTrue(tranship.arrow.read(buffer).equals(pyarrow.Table.from_batches([batch])))

    def test_a_frame_of_pandas(self):
        frame = pandas.DataFrame({"a": numpy.arange(10_000), "b": numpy.ones(10_000), "c": ["x"] * 10_000})
        got = tranship.arrow.read_pandas(tranship.arrow.write_pandas(frame))
        pandas.testing.assert_frame_equal(got, frame)
        self.assertFalse(got["a"].to_numpy().flags.writeable)
        items = mp.Queue()
        items.put(frame)
        got = items.get()
        pandas.testing.assert_frame_equal(got, frame)

    def test_what_is_no_stream_is_refused(self):
        with self.assertRaises(pyarrow.ArrowInvalid):
            tranship.arrow.read(_family.family().pool.copy(b"no stream" * 100))


if __name__ == "__main__":
    unittest.main()
