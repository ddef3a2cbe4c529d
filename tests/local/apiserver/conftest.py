"""A kubectl with a new namespace for each test."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.servers import Server

KUBECTL = Path(sys.executable).with_name("kubectl")


class Kubectl:
    """Runs the real kubectl against one server, in one namespace."""

    def __init__(self, server: Server, namespace: str, home: Path) -> None:
        self.server, self.namespace, self.home = server, namespace, home

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, seconds: float = 30) -> str:
        """Its output; the exit code must be the one expected."""
        done = self.run(*arguments, stdin=stdin, seconds=seconds)
        assert done.returncode == code, f"kubectl {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def run(self, *arguments: str, stdin: str = "", seconds: float = 30) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=self.environment,
            check=False,
        )

    def command(self, *arguments: str) -> list[str]:
        return [str(KUBECTL), f"--namespace={self.namespace}", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.server.kubeconfig), "HOME": str(self.home)}


@pytest.fixture
def kubectl(local_apiserver: Server, tmp_path: Path) -> Kubectl:
    """kubectl against our server, in a fresh namespace."""
    user = Kubectl(local_apiserver, f"t{secrets.token_hex(4)}", tmp_path)
    user("create", "namespace", user.namespace)
    return user


@pytest.fixture
def kubectl_for(tmp_path: Path) -> Callable[[Server], Kubectl]:
    """kubectl against any server, in the namespace `default`."""
    return lambda server: Kubectl(server, "default", tmp_path)
