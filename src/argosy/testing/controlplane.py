"""A whole local control plane for tests, brought up and used by the `argosy` command as a user does."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from argosy.local.state import State

ARGOSY = Path(sys.executable).with_name("argosy")
KUBECTL = Path(sys.executable).with_name("kubectl")
REPOSITORY = Path(__file__).parents[3]


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
        kept = {
            name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "VIRTUAL_ENV")
        }
        return {
            **kept,
            "ARGOSY_HOME": str(self.home),
            "PATH": f"{ARGOSY.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def argosy(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `argosy …` from the repository's root; a code other than wanted (None: any) fails the test."""
        return self._run((str(ARGOSY), *words), code, stdin, timeout)

    def kubectl(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl with the administrator's kubeconfig."""
        return self._run(
            (str(KUBECTL), "--kubeconfig", str(self.state.kubeconfig), *words), code, stdin, timeout
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `argosy …` and return at once; its output is to be read from the pipe."""
        return subprocess.Popen(
            (str(ARGOSY), *words),
            env=self.environment,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def get(self, *words: str) -> dict[str, object]:
        """An object, or a list of them, as kubectl gets it."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=dict[str, object])

    def down(self) -> None:
        self.argosy("down", "--delete", code=None)
        self.home.rmdir()

    def _run(
        self, command: Sequence[str], code: int | None, stdin: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=REPOSITORY,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"{' '.join(command)} ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
            )
        return done
