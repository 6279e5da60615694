"""Where the program `tranship` is that came with the package, to be started as the manager."""

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator


def _places() -> Iterator[str]:
    """Where it may lie, the surest first."""
    try:
        files = importlib.metadata.files(__package__) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "tranship":
            yield os.path.normpath(str(file.locate()))
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")):
        if folder:
            yield os.path.join(folder, "tranship")


def program() -> str | None:
    """It; nothing where the environment names one, or where none came along: then it is looked for as anywhere."""
    if "TRANSHIP_BIN" in os.environ:
        return None
    for place in _places():
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return None
