"""`tranship.top()`: a manager's figures as tables, for a shell and a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ._native import Domain
from ._notebook import amount, bar, table

# Tables, their columns, and the key and unit of each in the figures.
_TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "domains": {
        "name": ("name", ""),
        "process": ("pid", ""),
        "data": ("data_bytes", "bytes"),
        "other memory": ("own_bytes", "bytes"),
    },
    "pools": {
        "name": ("name", ""),
        "writer": ("writer", "domain"),
        "trust": ("trust", ""),
        "live": ("live_bytes", "bytes"),
        "granted": ("granted_bytes", "bytes"),
        "quota": ("quota_bytes", "bytes"),
        "buffers": ("live_buffers", ""),
        "readers": ("readers", ""),
    },
    "channels": {
        "name": ("name", ""),
        "from": ("source", "domain"),
        "to": ("sink", "domain"),
        "queued": ("depth", ""),
        "taken": ("taken", ""),
        "stalls": ("stalls", ""),
    },
}


class Top:
    """Figures of one moment. `stat` has all of them, sizes in bytes; the text and a notebook show a part, as tables. It can be pickled."""

    def __init__(self, stat: Mapping[str, Any]) -> None:
        self.stat = stat
        self._names = {one["domain"]: one["name"] for one in stat["domains"]}

    def _cell(self, value: Any, unit: str) -> str:
        if value is None:
            return "-"
        if unit == "bytes":
            return amount(value)
        return str(self._names.get(value, value)) if unit == "domain" else str(value)

    def _tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        for name, columns in _TABLES.items():
            rows = [[self._cell(row[key], unit) for key, unit in columns.values()] for row in self.stat[name]]
            yield name, [list(columns), *rows]

    def _title(self) -> str:
        manager = self.stat["manager"]
        if manager is None:
            return "a manager that says nothing of itself"
        return f"manager {manager['pid']}: {amount(manager['granted_bytes'])} of {amount(manager['total_bytes'])} granted"

    def __repr__(self) -> str:
        lines = [self._title()]
        for name, rows in self._tables():
            widths = [max(map(len, column)) for column in zip(*rows)]
            lines += ["", f"{name}: {len(rows) - 1}"]
            lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        manager = self.stat["manager"]
        parts = [] if manager is None else [bar(manager["granted_bytes"], manager["total_bytes"], f"granted by manager {manager['pid']}")]
        return "".join([*parts, *(table(name, head, rows) for name, (head, *rows) in self._tables())])


def top(domain: Domain | None = None) -> Top:
    """Returns the figures of a domain's manager, or of the program's own: of this moment. Asks the manager, and waits for its answer.

    A shell shows them as text, a notebook as tables. `AccessDenied`: the manager's rules let this user not ask.

    >>> import tranship, tranship.mp
    >>> tranship.top().stat["manager"]["pid"] > 0
    True
    """
    if domain is None:
        from ._family import family

        domain = family().domain
    return Top(domain.admin().stat())


top.__module__ = "tranship"
