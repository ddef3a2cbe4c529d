"""Virtual environments made by pip from a lock, with nothing else in them."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import commands

_OFFLINE = re.compile(r"NewConnectionError|NameResolutionError|Network is unreachable|ProxyError")


def install_locked(prefix: Path, lock: Path) -> Path:
    """Return the Python of a new environment that has what a lock names.

    The test that asks for it is skipped if no package index can be reached, unless all tests are required.
    """
    python = prefix / "bin" / "python"
    commands.run((sys.executable, "-m", "venv", str(prefix)), commands.environment(), timeout=120)
    pip = (str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    command = (*pip, "--require-hashes", "--only-binary=:all:", "-r", str(lock))
    done = commands.run(command, commands.environment(), code=None, timeout=240)
    if done.returncode != 0 and _OFFLINE.search(done.stderr) and os.environ.get("ARGOSY_REQUIRE_ALL") != "1":
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return python
