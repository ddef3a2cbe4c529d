"""Runs a local control plane as an unprivileged user, for tests that run as root.

All its processes run as `nobody`, with a Python that this user may run. Where only root may open
/dev/net/tun, unlike on common desktops and servers, it gets one that everybody may open.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import argosy
from tests.support.local_control_plane import ControlPlane

NOBODY = 65534

_AS_NOBODY = f"""
import os, sys
from argosy.local.node import kernel
kernel.unshare(kernel.NEW_MOUNT)
kernel.mount("none", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
if os.path.exists("/dev/net/tun"):
    kernel.mount("tmpfs", "/dev/net", "tmpfs", 0, "mode=755")
    os.mknod("/dev/net/tun", 0o020666, os.makedev(10, 200))
    os.chmod("/dev/net/tun", 0o666)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
os.chdir("/")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def python_path() -> str:
    """Return the folders in which another interpreter finds the package and the test support."""
    source = Path(argosy.__file__).parents[1]
    return f"{source}:{Path(__file__).parents[2]}"


class Python(NamedTuple):
    """An interpreter, and the folders of the package and its dependencies."""

    program: str
    path: str

    @staticmethod
    def of_nobody() -> "Python | None":
        """An interpreter with our dependencies that an unprivileged user may run, or None."""
        source = str(Path(argosy.__file__).parents[1])
        installed = sysconfig.get_paths()["platlib"]
        for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
            candidate = Python(program, f"{source}:{installed}")
            check = [program, "-c", "import msgspec, cryptography, argosy"]
            try:
                done = subprocess.run(
                    check,
                    env=candidate.environment,
                    user=NOBODY,
                    group=NOBODY,
                    extra_groups=[],
                    check=False,
                    cwd="/",
                    capture_output=True,
                )
            except OSError:
                continue
            if done.returncode == 0:
                return candidate
        return None

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": self.path, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class RootlessPlane:
    python: Python
    plane: ControlPlane
    """For use with its kubeconfig; only the unprivileged user starts and stops it."""

    @classmethod
    def up(cls, python: Python, *options: str) -> "RootlessPlane":
        home = Path(tempfile.mkdtemp(prefix="argosy-"))
        os.chown(home, NOBODY, NOBODY)
        running = cls(python, ControlPlane(home))
        running.argosy("up", "--timeout", "60", *options)
        return running

    def down(self) -> None:
        self.argosy("down", "--delete")
        shutil.rmtree(self.plane.home)

    def argosy(self, *words: str) -> str:
        """Run `argosy …` as nobody; returns its output."""
        command = [self.python.program, "-m", "argosy", *words]
        home = str(self.plane.home)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, *command],
            env={**self.python.environment, "ARGOSY_HOME": home, "HOME": home},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"argosy {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout
