"""Path of the program `tranship` that came with the package, to be started as the manager."""

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator


def _places() -> Iterator[str]:
    """Returns the places where it may lie, the surest first."""
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
    """Returns the path. None if the environment names a program, or if none came along: then the usual search applies."""
    if "TRANSHIP_BIN" in os.environ:
        return None
    for place in _places():
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return None
