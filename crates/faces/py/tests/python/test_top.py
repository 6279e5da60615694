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
    assert shown.count("<table>") == 3
    assert "&lt;script&gt;" in shown and "<script>" not in shown


def test_without_a_domain_it_is_the_programs_own():
    with tranship.Store.create("<shown>") as store:
        assert any(pool["name"] == "mp" for pool in tranship.top().stat["pools"])
        assert "&lt;shown&gt;" in store._repr_html_()
