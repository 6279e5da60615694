"""`tranship-python-buffer`: buffers without numpy, of which 8 bytes are written and read."""

import struct

from tranship_domain import Ends

WORD = struct.Struct("=Q")


class Side(Ends):
    def send(self, stamp):
        buffer = self.pool.alloc(self.payload)
        WORD.pack_into(buffer, 0, stamp)
        self.sender.send(buffer)

    def recv(self):
        return WORD.unpack_from(self.receiver.recv(), 0)[0]
