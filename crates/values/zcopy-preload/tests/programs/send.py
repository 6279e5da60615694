import os
import socket
import threading

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()

blocks = [os.urandom(200_000) for _ in range(16)]
sent = [blocks[number % 16] for number in range(64)]
expected = b"".join(sent)
got = bytearray()


def receive():
    while len(got) < len(expected):
        got.extend(far.recv(1 << 20))


reader = threading.Thread(target=receive)
reader.start()
for block in sent:
    near.sendall(block)
reader.join()
assert bytes(got) == expected

# Memory that is written after it was sent, while nobody has read it.
near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
buffer = bytearray(b"a" * 300_000)
near.setblocking(False)
sent = near.send(buffer)
buffer[:] = b"b" * len(buffer)
far.setblocking(True)
left = b""
while len(left) < sent:
    left += far.recv(sent - len(left))
assert left == b"a" * sent
assert buffer == b"b" * 300_000

# A child has its parent's memory, and neither sees the other's writes.
child = os.fork()
if child == 0:
    same = buffer == b"b" * 300_000
    buffer[:] = b"c" * len(buffer)
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
assert buffer == b"b" * 300_000
