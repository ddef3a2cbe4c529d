"""Runs the commands of et-operator's README in `deploy/et` of a clone."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.kinds.meta import Json
from tests.support import commands
from tests.support.clones import copy_clone
from tests.support.commands import KUBECTL

WITHOUT_PORTS = "--endpoint= --metrics-bind-address= --health-probe-bind-address="
"""Options of operators that run beside other tests."""
NAMESPACED = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"


def clone_for_make(parent: Path) -> Path:
    """Return a clone at a path with a space in it."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    folder = parent / "a clone"
    folder.mkdir()
    return copy_clone(folder)


class Readme:
    """Runs commands in `deploy/et` of a clone."""

    api, namespace, deployment = "et", "kube-ai", "et-operator"
    run_target = "run-local"
    """What runs the operator in the foreground."""

    def __init__(self, clone: Path, kubeconfig: Path = Path("/nonexistent"), path: str = "") -> None:
        self.folder = clone / "deploy" / self.api
        self.values = self.folder / "config" / "values.yaml"
        removed = ("IMG", "MAKEFLAGS", "MAKELEVEL")
        inherited = {key: value for key, value in commands.environment().items() if key not in removed}
        self.variables = {**inherited, "KUBECONFIG": str(kubeconfig), **({"PATH": path} if path else {})}

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def make(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("make", *words, code=code)

    def kubectl(self, *words: str) -> str:
        return self.run(str(KUBECTL), *words).stdout

    def get(self, *words: str) -> Json:
        return cast("Json", json.loads(self.kubectl("get", *words, "-o", "json")))

    def field(self, path: str, *words: str) -> str:
        return self.kubectl("get", *words, "-o", f"jsonpath={{{path}}}")

    def edit(self, **values: object) -> None:
        """Change values in config/values.yaml."""
        written = yaml.safe_load(self.values.read_text())
        self.values.write_text(yaml.safe_dump({**written, **values}))

    def versions(self) -> dict[str, str]:
        """Return the version of each object that an installation may change: of a Deployment, whose status a
        controller writes, the generation."""
        found: dict[str, str] = {}
        for kinds in (NAMESPACED, "clusterroles", "clusterrolebindings", "crds"):
            for obj in cast("list[Json]", self.get(kinds, "-n", self.namespace)["items"]):
                metadata = cast("dict[str, str]", obj["metadata"])
                field = "generation" if obj["kind"] == "Deployment" else "resourceVersion"
                found[f"{obj['kind']} {metadata['name']}"] = metadata[field]
        return found

    def operator(self, path: str) -> str:
        """Return a field of the operator's container."""
        at = f".spec.template.spec.containers[0]{path}"
        return self.field(at, "deployment", self.deployment, "-n", self.namespace)


@contextmanager
def run_local(readme: Readme, options: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the operator in the foreground, in a process group of its own, as a shell does, for the block."""
    command = ("make", readme.run_target, f"ARGS={WITHOUT_PORTS} {options}".rstrip())
    with (readme.folder / "log").open("wb") as log:
        running = subprocess.Popen(
            command,
            cwd=readme.folder,
            env=readme.variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)
