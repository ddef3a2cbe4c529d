"""A namespace of a user's cluster in which the live checks run, reached by kubectl."""

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
"""How long to wait for anything that must happen in the cluster."""
POLL_SECONDS = 0.2


class Namespace(Struct, frozen=True):
    """Runs kubectl in one namespace of the cluster that a kubeconfig names."""

    kubeconfig: Path
    name: str

    def kubectl(self, *words: str, code: int | None = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl; an exit code other than `code` (None: any) is an error."""
        command = (find_kubectl(), "--kubeconfig", str(self.kubeconfig), "--namespace", self.name, *words)
        shown = " ".join(("kubectl", *words))
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NonConformance(f"{shown} did not end within {TIMEOUT_SECONDS:g} s") from None
        if code is not None and done.returncode != code:
            raise NonConformance(f"{shown} exited with {done.returncode}: {done.stdout}{done.stderr}".strip())
        return done

    def get(self, *words: str) -> Json:
        """Return an object, or a list of objects, as `kubectl get` prints it."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=Json)

    def apply(self, manifest: Mapping[str, object]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def wait_until(self, condition: Callable[[], bool], describe: Callable[[], str]) -> None:
        """Poll until the condition holds; `describe` says what was found instead if it never does."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise NonConformance(f"not reached within {TIMEOUT_SECONDS:g} s: {describe()}")
            time.sleep(POLL_SECONDS)

    def wait_for_phase(self, run: str, *phases: str) -> Json:
        """Return the status of a TrainingRun as soon as it has one of these phases."""
        status: Json = {}

        def reached() -> bool:
            found = self.get("tr", run).get("status")
            status.update(found if isinstance(found, dict) else {})
            return status.get("phase") in phases

        self.wait_until(reached, lambda: self.kubectl("describe", "tr", run, code=None).stdout)
        return status


@contextmanager
def temporary_namespace(kubeconfig: Path, name: str) -> Iterator[Namespace]:
    """Create a namespace, and delete it with everything in it afterwards, without waiting for that."""
    made = Namespace(kubeconfig, name)
    made.kubectl("create", "namespace", name)
    try:
        made.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        yield made
    finally:
        made.kubectl("delete", "namespace", name, "--wait=false", code=None)


def find_kubectl() -> str:
    """Return the kubectl beside this Python, as the extra `kubectl` installs it, or else that on the PATH."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("kubectl")
    if not found:
        raise FileNotFoundError("kubectl: not found on PATH; install it, or `pip install argosy[kubectl]`")
    return found
