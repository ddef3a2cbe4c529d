"""Copies the repository, for tests of commands that write into a clone."""

import hashlib
import shutil
import sys
from pathlib import Path

from tests.support.commands import REPOSITORY

_COPIED = (
    *("charts", "deploy", "examples/spot", "scripts", "src"),
    *("LICENSE", "README.md", "pyproject.toml", "requirements.lock"),
)


def copy_clone(target: Path) -> Path:
    """Copy what builds, renders and installs. Its environment is the one that runs the tests."""
    for name in _COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name)  # with bytecode, which stays valid
        else:
            shutil.copy(source, target / name)
    _link_environment(target)
    return target


def _link_environment(clone: Path) -> None:
    """Create a `.venv` that the scripts take as complete, and that imports argosy from the clone."""
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("python", ""), ("argosy", " -m argosy")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nPYTHONPATH="{clone}/src" exec "{sys.executable}"{words} "$@"\n')
        path.chmod(0o755)
    pins = (clone / "requirements.lock").read_bytes() + (clone / "pyproject.toml").read_bytes()
    stamp = f"root {clone}\n{hashlib.sha256(pins).hexdigest()}\n"
    (clone / ".venv" / "argosy-stamp").write_text(stamp)
