"""What a notebook shows of an object, as HTML. Of a buffer, a pool and a domain it shows what this process knows: nothing here waits for the manager."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._native import Buffer, Domain, Pool

# First bytes of a buffer that are shown.
_FIRST = 32


def amount(count: float) -> str:
    """Returns a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table. Its cells are text: their markup is shown as it is."""

    def line(row: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def bar(part: int, whole: int, what: str) -> str:
    """Returns a bar: how much of a number of bytes is used."""
    return f'<p><progress value="{part}" max="{max(whole, 1)}"></progress> {amount(part)} of {amount(whole)} {html.escape(what)}</p>'


def _facts(thing: object, **facts: object) -> str:
    rows = [(name.replace("_", " "), str(value)) for name, value in facts.items() if value is not None]
    return table(repr(thing), ("", ""), rows)


def buffer(it: Buffer) -> str:
    """Shows a buffer: size, access, origin, and its first bytes."""
    if it.released:
        return _facts(it)
    first = bytes(it[at] for at in range(min(len(it), _FIRST)))
    return _facts(
        it,
        size=f"{len(it):,} bytes",
        access="read-only" if it.readonly else "writable",
        views=it.exports,
        trust=it.trust,
        sender=it.sender_pid and f"process {it.sender_pid}",
        first_bytes=first.hex(" ", 4) + (" ..." if len(it) > _FIRST else ""),
    )


def pool(it: Pool) -> str:
    """Shows a pool: its limits, its buffers, and how much of its quota it has."""
    try:
        stats = it.stats()
    except (ValueError, RuntimeError):  # closed, or a parent process's
        return _facts(it)
    live = stats["allocs"] - stats["frees"]
    facts = _facts(it, limit=amount(it.max_bytes), trust=it.trust, live_buffers=live, waiting_threads=stats["waiting"])
    return facts + bar(stats["chunk_bytes_present"], it.quota_bytes, "of the quota are there")


def domain(it: Domain) -> str:
    """Shows a domain: its number, and the manager that it has joined."""
    try:
        return _facts(it, number=it.id, manager=it.socket_path, figures="tranship.top(domain)")
    except (ValueError, RuntimeError):  # closed, or a parent process's
        return _facts(it)
