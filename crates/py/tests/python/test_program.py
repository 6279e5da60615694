"""Where the program is that came with the package."""

import os
import sys

from tranship import _program


def test_it_is_found_where_the_package_was_installed_to(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSHIP_BIN", "restored at the end")
    monkeypatch.delenv("TRANSHIP_BIN")
    # As `pip install --user` lays it out.
    site, bin = tmp_path / "lib/site-packages", tmp_path / "bin"
    record = site / "tranship-9.dist-info"
    record.mkdir(parents=True)
    bin.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tranship\nVersion: 9\n")
    (record / "RECORD").write_text("tranship/__init__.py,,\n../../bin/tranship,,\n")
    (bin / "tranship").touch(0o755)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    _program.point_to_program()
    assert os.environ["TRANSHIP_BIN"] == str(bin / "tranship")


def test_what_the_environment_says_stays(monkeypatch):
    monkeypatch.setenv("TRANSHIP_BIN", "mine")
    _program.point_to_program()
    assert os.environ["TRANSHIP_BIN"] == "mine"
