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

ROOT = pathlib.Path(__file__).resolve().parents[3]
# What lies here goes into the environment's `bin`; `pyproject.toml` names it.
SCRIPTS = ROOT / "crates/faces/py/wheel.data/scripts"
SCRIPTS.mkdir(parents=True, exist_ok=True)
# Cargo's: tests build what is there already.
PROFILE = os.environ.get("TRANSHIP_PROFILE", "release")
# One that is built already goes in as it is. Cargo would build it anew: alone it has other features than beside the rest.
BUILT = os.environ.get("TRANSHIP_BUILT_PROGRAM")


def _build_program():
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "build", "--profile", PROFILE, "-p", "tranship-cli", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = map(json.loads, built.stdout.splitlines())
    found = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "tranship"]
    return found[-1]


def _program():
    shutil.copy(BUILT or _build_program(), SCRIPTS / "tranship")
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {PROFILE}")


def build_wheel(directory, config_settings=None, metadata_directory=None):
    _program()
    return maturin.build_wheel(directory, config_settings, metadata_directory)


def build_editable(directory, config_settings=None, metadata_directory=None):
    _program()
    return maturin.build_editable(directory, config_settings, metadata_directory)
