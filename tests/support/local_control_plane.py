"""A whole local control plane for tests, brought up and used by the `argosy` command as a user does."""

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
    """The command and kubectl, pointed at one control plane of its own."""

    home: Path

    @classmethod
    def up(cls, *options: str) -> "ControlPlane":
        # Not pytest's folder: a Unix socket's path must be short.
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
        """Run `argosy …` from the repository's root; a code other than wanted (None: any) fails the test."""
        command = (str(ARGOSY), *words)
        return commands.run(command, self.environment, code=code, stdin=stdin, timeout=timeout)

    def kubectl(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl with the administrator's kubeconfig."""
        command = (str(KUBECTL), "--kubeconfig", str(self.state.kubeconfig), *words)
        return commands.run(command, self.environment, code=code, stdin=stdin, timeout=timeout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `argosy …` and return at once; its output is to be read from the pipe."""
        return commands.start((str(ARGOSY), *words), self.environment)

    def get(self, *words: str) -> dict[str, object]:
        """An object, or a list of them, as kubectl gets it."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=dict[str, object])

    def down(self) -> None:
        self.argosy("down", "--delete", code=None)
        self.home.rmdir()


@contextmanager
def operated(*options: str) -> Iterator[ControlPlane]:
    """A control plane of one node, with an operator of the caller's: `argosy operator` with these options."""
    plane = ControlPlane.up("--nodes", "1", "--no-operator")
    operator = plane.start("operator", "--local", str(plane.state.folder), *options)
    try:
        yield plane
    finally:
        operator.terminate()
        operator.communicate(timeout=60)
        plane.down()
