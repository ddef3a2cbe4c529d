"""A local control plane for tests, started and used with the `argosy` command as a user does."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from argosy.local.state import State
from tests.support import commands
from tests.support.commands import ARGOSY, KUBECTL, REPOSITORY

__all__ = ["ARGOSY", "KUBECTL", "REPOSITORY", "ControlPlane", "operated"]


@dataclass(frozen=True)
class ControlPlane:
    """`argosy` and kubectl for one control plane."""

    home: Path

    @classmethod
    def up(cls, *options: str) -> "ControlPlane":
        # Not pytest's folder: its path is too long for a Unix socket.
        plane = cls(Path(tempfile.mkdtemp(prefix="argosy-")))
        plane.argosy("up", "--timeout", "60", *options)
        return plane

    @property
    def state(self) -> State:
        return State(self.home / "local")

    @property
    def environment(self) -> dict[str, str]:
        return commands.environment(ARGOSY_HOME=str(self.home))

    def argosy(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `argosy …` in the root of the repository; fails on another exit code (None: any is fine)."""
        command = (str(ARGOSY), *words)
        return commands.run(command, self.environment, code=code, stdin=stdin, timeout=timeout)

    def kubectl(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl with the administrator's kubeconfig."""
        command = (str(KUBECTL), "--kubeconfig", str(self.state.kubeconfig), *words)
        return commands.run(command, self.environment, code=code, stdin=stdin, timeout=timeout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `argosy …` without waiting for it; the caller reads its output from the pipe."""
        return commands.start((str(ARGOSY), *words), self.environment)

    def get(self, *words: str) -> dict[str, object]:
        """The JSON that `kubectl get` returns."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=dict[str, object])

    def down(self) -> None:
        self.argosy("down", "--delete", code=None)
        self.home.rmdir()


@contextmanager
def operated(*options: str, nodes: int = 1) -> Iterator[ControlPlane]:
    """A control plane of so many nodes whose operator is `argosy operator` with these options."""
    plane = ControlPlane.up("--nodes", str(nodes), "--no-operator")
    operator = plane.start("operator", "--local", str(plane.state.folder), *options)
    try:
        yield plane
    finally:
        operator.terminate()
        operator.communicate(timeout=60)
        plane.down()
