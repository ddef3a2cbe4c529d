"""Creates virtual environments by pip with exactly the packages of a lock file."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import commands

_OFFLINE = re.compile(r"NewConnectionError|NameResolutionError|Network is unreachable|ProxyError")


def install_locked(prefix: Path, lock: Path) -> Path:
    """Create an environment with the packages of a lock file; returns its Python.

    The test is skipped if no package index can be reached, unless ARGOSY_REQUIRE_ALL is set.
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
