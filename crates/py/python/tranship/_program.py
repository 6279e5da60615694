"""Where the program `tranship` is that came with the package: what starts a manager looks there."""

import os
import sys
import sysconfig


def point_to_program() -> None:
    """Says so in the environment, unless that says something else. Programs with their starter's privileges only look at it."""
    if "TRANSHIP_BIN" in os.environ:
        return
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")):
        program = os.path.join(folder or "", "tranship")
        if folder and os.access(program, os.X_OK):
            os.environ["TRANSHIP_BIN"] = program
            return
