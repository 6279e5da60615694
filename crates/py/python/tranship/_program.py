"""Where the program `tranship` is that came with the package: what starts a manager looks there."""

import importlib.metadata
import os
import sys
import sysconfig


def _places():
    """Where it may lie, the surest first."""
    try:
        files = importlib.metadata.files(__package__) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "tranship":
            yield os.path.normpath(file.locate())
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")):
        if folder:
            yield os.path.join(folder, "tranship")


def point_to_program() -> None:
    """Says so in the environment, unless that says something else. Programs with their starter's privileges only look at it."""
    if "TRANSHIP_BIN" in os.environ:
        return
    for program in _places():
        if os.path.isfile(program) and os.access(program, os.X_OK):
            os.environ["TRANSHIP_BIN"] = program
            return
