"""Builds the wheel: maturin's, with the program `tranship` in it, so that `tranship.connect()` finds a manager to start."""

import json
import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import (  # noqa: F401
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

from progress import told

ROOT = pathlib.Path(__file__).resolve().parents[4]
# The files here go into the environment's `bin`; `pyproject.toml` names it.
SCRIPTS = ROOT / "crates/faces/py/wheel.data/scripts"
SCRIPTS.mkdir(parents=True, exist_ok=True)
# Cargo's profile: tests build with the one that is built already.
PROFILE = os.environ.get("TRANSHIP_PROFILE", "release")
# The manager, all that asks it, and certificates. The block server, the cache, the terminal view and the demo stay out.
FEATURES = ["--no-default-features", "--features", "net"]
# One that is built already goes in as it is. Cargo would build it anew: alone it has other features than beside the rest.
BUILT = os.environ.get("TRANSHIP_BUILT_PROGRAM")


def _build_program():
    cargo = os.environ.get("CARGO", "cargo")
    package = ["-p", "tranship-cli", *FEATURES]
    command = [cargo, "build", "--profile", PROFILE, *package, "--message-format=json-render-diagnostics"]
    found = None
    with told("building the program `tranship`") as more, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as built:
        for number, line in enumerate(built.stdout, 1):
            message = json.loads(line)
            target = message.get("target", {}).get("name", "")
            more(f"{number} parts are done, the last one is {target}")
            if message.get("executable") and target == "tranship":
                found = message["executable"]
    if built.returncode:
        raise subprocess.CalledProcessError(built.returncode, command)
    return found


def _program():
    shutil.copy(BUILT or _build_program(), SCRIPTS / "tranship")
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {PROFILE}")


def build_wheel(directory, config_settings=None, metadata_directory=None):
    _program()
    with told("building the extension module"):
        return maturin.build_wheel(directory, config_settings, metadata_directory)


def build_editable(directory, config_settings=None, metadata_directory=None):
    _program()
    with told("building the extension module"):
        return maturin.build_editable(directory, config_settings, metadata_directory)
