"""Prepares what the tests need outside of the clone: programs of Kubernetes, packages, MPI, frameworks.

Each step does nothing when its result exists, and prints how long it took. None of it belongs to a stage: it
happens once per machine and has no time budget.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = {
    "python3-torch": ("/usr/bin/python3", "-c", "import torch"),
    "openmpi-bin": ("/usr/bin/mpirun", "--version"),
    "openssh-server": ("/usr/bin/test", "-x", "/usr/sbin/sshd"),
    "python3-mpi4py": ("/usr/bin/python3", "-c", "import mpi4py"),
    "busybox": ("/usr/bin/test", "-x", "/usr/bin/busybox"),
    "nftables": ("/usr/sbin/nft", "--version"),
    "iptables": ("/usr/sbin/iptables", "--version"),
    "docker-registry": ("/usr/bin/docker-registry", "--version"),
    "passt": ("/usr/bin/pasta", "--version"),
    **{
        name: ("/usr/bin/dpkg", "-s", name)
        for name in (
            *("cmake", "g++", "libopenmpi-dev", "libtorch-dev", "make", "pybind11-dev", "python3-dev"),
            *("python3-cloudpickle", "python3-packaging", "python3-psutil", "python3-venv", "python3-yaml"),
        )
    },
}
"""Debian packages, each with a command that succeeds if it is installed.

They are PyTorch, Open MPI and sshd for the examples, tools for the network of pods, a registry of images, and
what Horovod is built with.
"""


def build_kubernetes(*words: str) -> str:
    """Build programs of Kubernetes that are not in the cache; returns the error, or nothing on success."""
    with _timed(f"programs of Kubernetes ({' '.join(words)})"):
        command = [sys.executable, "-m", "tests.support.kubernetes", "build", *words]
        built = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    return "" if built.returncode == 0 else built.stderr.strip().splitlines()[-1]


def install_packages() -> None:
    """Install missing Debian packages, system-wide: only for machines that belong to the tests."""
    with _timed("Debian packages"):
        if missing := [package for package, probe in PACKAGES.items() if not _succeeds(probe)]:
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
                subprocess.run(["apt-get", "-qq", *words], env=quiet, stdout=subprocess.DEVNULL, check=False)


def unpack_criu() -> None:
    """Unpack CRIU into the cache; without it the tests of process checkpoints are skipped."""
    with _timed("CRIU"):
        subprocess.run([sys.executable, "scripts/criu.py"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)


def install_frameworks() -> None:
    """Make the virtual environments of the MPI implementations and of the examples' frameworks."""
    with _timed("MPI implementations"):
        subprocess.run([sys.executable, "-m", "tests.support.mpi_venvs"], cwd=ROOT, check=False)
    with _timed("frameworks of the examples"):
        subprocess.run([sys.executable, "-m", "tests.support.framework_venvs"], cwd=ROOT, check=False)


@contextmanager
def _timed(title: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    sys.stderr.write(f"{title}: prepared in {time.monotonic() - started:.1f} s\n")
    sys.stderr.flush()


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
