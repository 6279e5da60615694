"""Where the program is that came with the package, and that it is what is started."""

import os
import sys

import pytest

import tranship
from tranship import _program


def installed(tmp_path, monkeypatch):
    """A package as `pip install --user` lays it out. Its program."""
    monkeypatch.delenv("TRANSHIP_BIN", raising=False)
    site, bin = tmp_path / "lib/site-packages", tmp_path / "bin"
    record = site / "tranship-9.dist-info"
    record.mkdir(parents=True)
    bin.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tranship\nVersion: 9\n")
    (record / "RECORD").write_text("tranship/__init__.py,,\n../../bin/tranship,,\n")
    program = bin / "tranship"
    program.touch(0o755)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    return program


def test_it_is_found_where_the_package_was_installed_to(tmp_path, monkeypatch):
    program = installed(tmp_path, monkeypatch)
    assert _program.program() == str(program)


def test_what_the_environment_says_goes_first(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch)
    monkeypatch.setenv("TRANSHIP_BIN", "mine")
    assert _program.program() is None


def test_it_is_started_and_the_environment_stays_as_it_was(tmp_path, monkeypatch):
    program = installed(tmp_path, monkeypatch)
    # It stands for the manager's, and fails.
    program.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/called\nexit 3\n")
    monkeypatch.delenv("TRANSHIP_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if os.path.exists("/run/tranship/manager.sock"):
        pytest.skip("a manager of the system runs here")
    before = dict(os.environ)
    with pytest.raises(tranship.NoManager, match="bin/tranship ended with exit status: 3"):
        tranship.connect()
    assert (tmp_path / "called").read_text().startswith("manager --daemonize")
    assert dict(os.environ) == before
