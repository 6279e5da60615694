"""Where an array's bytes are. Both sides of a test look in the same way."""

import os
import re
import struct

PAGE = os.sysconf("SC_PAGE_SIZE")
_FRAME = (1 << 55) - 1
_LINE = re.compile(r"(\w+)-(\w+) \S+ (\w+) (\S+ \d+)")


def _place(address):
    """Which memory lies at an address, by device and inode, and which byte of it: what anybody may know of a process of his own."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end, offset, file = _LINE.match(line).groups()
            if int(start, 16) <= address < int(end, 16):
                return [file, int(offset, 16) + address - int(start, 16)]


def _frames(address, length):
    """Numbers of the physical pages; 0 where one must be root to know them."""
    first, last = address // PAGE, (address + length - 1) // PAGE
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(first * 8)
        entries = pagemap.read(8 * (last - first + 1))
    return [entry & _FRAME for (entry,) in struct.iter_unpack("Q", entries)]


def shown(array):
    """Its place, and its physical pages."""
    array.sum()  # so that each page is there
    return [_place(array.ctypes.data), _frames(array.ctypes.data, array.nbytes)]
