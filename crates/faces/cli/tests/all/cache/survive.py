import select
import sys
from pymemcache.client.base import Client

c = Client(("127.0.0.1", int(sys.argv[1])), default_noreply=False)


def value(n):
    return str(n).encode() * (n % 700 + 1)


for n in range(2000):
    assert c.set(f"k{n}", value(n))
print("2000 stored", flush=True)
# One connection, all the time, until the test says that it is time to count.
rounds = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    n = rounds % 2000
    assert c.get(f"k{n}") == value(n), n
    assert c.set(f"own{rounds % 50}", value(rounds)) and c.get(f"own{rounds % 50}") == value(rounds)
    rounds += 1
assert sys.stdin.readline() == "count\n"
for first in range(0, 2000, 100):
    keys = [f"k{n}" for n in range(first, first + 100)]
    got = c.get_many(keys)
    assert all(got[f"k{n}"] == value(n) for n in range(first, first + 100))
assert c.stats()[b"curr_items"] == 2000 + min(rounds, 50)
print("all there", flush=True)
sys.stdin.read()
