"""`tranship.top()`: figures for a shell and a notebook."""

import tranship


def test_it_shows_what_there_is(domain, pool, channel):
    buffer = pool.copy(bytes(3 << 20))
    top = tranship.top(domain)
    said = repr(top)
    assert said.startswith(f"manager {top.stat['manager']['pid']}: ")
    (line,) = [line for line in said.splitlines() if line.split()[:2] == ["pool", "test"]]
    assert line.split()[2] == "producer" and "MiB" in line
    assert "channels: 1" in said and "domains: 2" in said
    del buffer


def test_a_notebook_gets_tables_without_the_names_markup(domain):
    with domain.pool("<script>", 1 << 20):
        shown = tranship.top(domain)._repr_html_()
    assert shown.count("<table>") == 3 and shown.count("<progress") == 1
    assert "&lt;script&gt;" in shown and "<script>" not in shown


def test_a_notebook_shows_what_this_process_knows(domain, other):
    with domain.pool("<b>", 1 << 20) as pool:
        buffer = pool.copy(bytes(range(100)))
        shown = buffer._repr_html_()
        assert "100 bytes" in shown and "writable" in shown and "00010203" in shown and "64" not in shown.split("first bytes")[1]
        buffer.release()
        assert "released" in buffer._repr_html_()
        kept = pool.alloc(4096)
        shown = pool._repr_html_()
        assert "&lt;b&gt;" in repr(pool) or "&lt;b&gt;" in shown
        assert "<b>" not in shown and "live buffers</td><td>1<" in shown and "<progress" in shown
        del kept
    assert "not open here" in pool._repr_html_()
    assert str(domain.socket_path) in other._repr_html_()
    other.close()
    assert "not open here" in other._repr_html_()


def test_without_a_domain_it_is_the_programs_own():
    with tranship.Store.create("<shown>") as store:
        assert any(pool["name"] == "mp" for pool in tranship.top().stat["pools"])
        assert "&lt;shown&gt;" in store._repr_html_()
