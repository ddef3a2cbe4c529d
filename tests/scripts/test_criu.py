"""Tests for the script that unpacks CRIU."""

from pathlib import Path

import pytest

from argosy.checkpoint.drivers.criu import find_prefix
from scripts import criu


def test_the_lock_pins_every_package_by_version_and_checksum() -> None:
    architecture, pins = criu.read_lock(criu.LOCK)
    assert architecture == "amd64"
    assert {"criu", "libc6"} <= {pin.name for pin in pins}
    assert all(len(pin.sha256) == 64 and pin.version[0].isdigit() for pin in pins)


def test_what_the_lock_names_is_not_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (criu.prefix() / "usr").mkdir(parents=True)
    with pytest.raises(criu.UnavailableError, match="apt-get is needed"):
        criu.unpack()
    (criu.prefix() / criu.STAMP).write_bytes(criu.LOCK.read_bytes())
    assert criu.unpack() == criu.prefix()


def test_the_package_looks_where_the_script_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/sbin/criu"):
        path = criu.prefix() / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert find_prefix() == criu.prefix()
