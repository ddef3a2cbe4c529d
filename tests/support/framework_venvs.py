"""Installs virtual environments for the examples that need a framework, once, in the user's cache.

An environment contains exactly the example's `requirements.txt`; its name has a hash of that file. A stamp
marks a complete environment, and a lock makes concurrent installations wait. It is created in its final
folder, because its scripts contain their own path.

Horovod exists only as source code and does not work with current versions of PyTorch, so it is built
against Debian's, which takes minutes. DeepSpeed uses Debian's PyTorch too, because the current one is
thirty times as large.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.commands import REPOSITORY

_STAMP = "argosy-stamp"
_DEBIAN: Final = Path("/usr/bin/python3")
_BUILDS: Final[Mapping[str, Mapping[str, str]]] = {
    "deepspeed": {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"},
    "horovod": {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    },
}
"""Environment variables of the builds from source, which use the packages of Debian's Python."""


@dataclass(frozen=True)
class Environment:
    """The environment of the examples in one folder."""

    name: str

    @property
    def requirements(self) -> Path:
        return REPOSITORY / "examples" / self.name / "requirements.txt"

    @property
    def prefix(self) -> Path:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        built = repr(_BUILDS[self.name]).encode() if self.name in _BUILDS else b""
        content = hashlib.sha256(self.requirements.read_bytes() + built).hexdigest()[:12]
        return cache() / f"{self.name}-{python}-{content}"

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def missing(self) -> str:
        """Why the environment cannot be used; empty if it can."""
        if (self.prefix / _STAMP).exists():
            return ""
        command = f"python -m tests.support.framework_venvs {self.name}"
        return f"{self.name} is not installed; {command} installs it"

    def install(self) -> None:
        """Create the environment if it does not exist."""
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.missing:
                shutil.rmtree(self.prefix, ignore_errors=True)
                self._make()
                (self.prefix / _STAMP).touch()

    def _make(self) -> None:
        wanted = ("--no-deps", "-r", self.requirements)
        if self.name in _BUILDS:
            _run(_DEBIAN, "-m", "venv", "--system-site-packages", self.prefix)
            command = (self.python, "-m", "pip", "install", "-q", "--no-build-isolation", *wanted)
            _run("nice", "-n", "19", *command, variables=_BUILDS[self.name])
        elif uv := shutil.which("uv"):
            _run(uv, "venv", "-q", "--python", sys.executable, self.prefix)
            _run(uv, "pip", "install", "-q", "--python", self.python, *wanted)
        else:
            _run(sys.executable, "-m", "venv", self.prefix)
            _run(self.python, "-m", "pip", "install", "-q", *wanted)


def of_framework(name: str) -> Environment | None:
    """The environment of a framework's examples; None if they need nothing beyond the repository's own."""
    environment = Environment(name)
    return environment if environment.requirements.exists() else None


def every() -> list[Environment]:
    files = (REPOSITORY / "examples").glob("*/requirements.txt")
    return [Environment(path.parent.name) for path in sorted(files)]


def cache() -> Path:
    """The folder of all environments."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "frameworks"


def _run(*words: str | Path, variables: Mapping[str, str] | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, env={**os.environ, **(variables or {})})


def main(names: list[str]) -> int:
    """Install the named environments, or all, two at a time: one downloads while another compiles."""
    wanted = [environment for environment in every() if not names or environment.name in names]
    wanted.sort(key=lambda environment: environment.name != "horovod")  # the slowest first
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(pool.map(_install, wanted)) else 1


def _install(environment: Environment) -> bool:
    """Install an environment; a failure is printed and does not stop the others."""
    try:
        environment.install()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{environment.name}: {error}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
