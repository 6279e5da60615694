import sys
from pymemcache.client.base import Client

c = Client(("127.0.0.1", int(sys.argv[1])), default_noreply=False)
assert c.set("k", b"v" * 5000) and c.get("k") == b"v" * 5000
assert c.add("k", b"x") is False and c.replace("k", b"10")
assert c.incr("k", 5) == 15 and c.decr("k", 20) == 0
value, cas = c.gets("k")
assert c.cas("k", b"new", cas) is True and c.cas("k", b"newer", cas) is False
assert c.append("k", b"!") and c.prepend("k", b"?") and c.get("k") == b"?new!"
assert c.touch("k", 100)
assert c.set_many({f"n{i}": str(i).encode() * 300 for i in range(500)}) == []
many = c.get_many([f"n{i}" for i in range(500)] + ["none"])
assert len(many) == 500 and many["n77"] == b"77" * 300
assert c.delete("k") and c.get("k") is None
assert b"curr_items" in c.stats()
assert c.flush_all() and c.get("n1") is None
assert c.version()
c.quit()
