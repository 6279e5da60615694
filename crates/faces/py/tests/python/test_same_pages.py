"""What is sent arrives without a copy: both processes have the same pages of the same memory."""

import json

import numpy
import pytest
from pages import PAGE, shown

import tranship

RECEIVE = """
import json, pages
with domain.open("pages", tranship.Receiver) as receiver:
    for buffer in receiver:
        array = numpy.frombuffer(buffer, numpy.uint64)
        say(json.dumps([pages.shown(array), pages.shown(array.copy()), int(array.sum())]))
"""


@pytest.mark.parametrize("level", ["producer", "full"])
def test_an_array_arrives_in_the_same_physical_pages(domain, peer, level):
    pool = domain.pool(level, 64 << 20, trust=level)
    other = peer(RECEIVE)
    with domain.listen("pages", tranship.Sender) as listener, listener.accept() as sender:
        for nbytes in (PAGE, 1 << 20, 16 << 20):
            array = pool.empty(nbytes // 8, numpy.uint64)
            array[:] = nbytes
            before = shown(array)
            sender.send(array)
            there, copied, total = json.loads(other.hear())
            after = shown(array)
            assert total == nbytes // 8 * nbytes
            # The same bytes of the same memory, which has each page once.
            assert there[0] == before[0] == after[0]
            assert copied[0] != there[0]
            # Root sees the pages themselves. The kernel may have moved one meanwhile.
            if before[1] == after[1] and all(before[1]):
                assert there[1] == before[1]
                assert not set(copied[1]) & set(before[1])
    assert other.end() == 0
