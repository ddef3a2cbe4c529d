"""A user of a test target: the `argosy` command and kubectl in a namespace of their own.

A conformance test acts only through a user, so that it does not depend on which target it runs on.
"""

import json
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from tests.support import commands
from tests.support.builders import RunBuilder
from tests.support.commands import ARGOSY, KUBECTL
from tests.support.targets import Target

Json = dict[str, object]

_NAMESPACED: Final = frozenset(("run", "ps", "logs", "describe", "scale", "rm"))
"""The subcommands of `argosy` that take a namespace."""
_PHASE_SECONDS: Final = 90.0


@dataclass(frozen=True)
class User:
    target: Target
    namespace: str

    @property
    def environment(self) -> dict[str, str]:
        return commands.environment(KUBECONFIG=str(self.target.kubeconfig))

    def kubectl(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 90
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator in the namespace; fails on another exit code (None: any is fine)."""
        return commands.run(
            self.kubectl_command(*words), self.environment, code=code, stdin=stdin, timeout=timeout
        )

    def kubectl_command(self, *words: str) -> tuple[str, ...]:
        return (str(KUBECTL), "--namespace", self.namespace, *words)

    def argosy(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `argosy …` in the namespace; fails on another exit code (None: any is fine)."""
        return commands.run(
            self.argosy_command(*words), self.environment, code=code, stdin=stdin, timeout=timeout
        )

    def argosy_command(self, *words: str) -> tuple[str, ...]:
        namespace = ("-n", self.namespace) if words[0] in _NAMESPACED else ()
        return (str(ARGOSY), words[0], *namespace, *words[1:])

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `argosy …` without waiting for it; the caller reads its output from the pipe."""
        return commands.start(self.argosy_command(*words), self.environment)

    def get(self, *words: str) -> Json:
        """The JSON that `kubectl get` returns."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=Json)

    def apply(self, *objects: Mapping[str, object] | RunBuilder) -> None:
        built = [item.build() if isinstance(item, RunBuilder) else item for item in objects]
        for item in built:
            cast("Json", item["metadata"]).pop("namespace", None)
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(item) for item in built))

    def status(self, name: str) -> Json:
        """The status of a TrainingRun; empty as long as it has none."""
        return cast("Json", self.get("tr", name).get("status", {}))

    def wait_for_phase(
        self, name: str, *phases: str, kind: str = "tr", seconds: float = _PHASE_SECONDS
    ) -> Json:
        """Wait until a job has one of these phases; returns its status."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with closing(self._watch_status(kind, name, left)) as statuses:
                for status in statuses:
                    if status.get("phase") in phases:
                        return status
            self.get(kind, name)  # fails if there is no such job
        raise AssertionError(self.kubectl("describe", kind, name).stdout)

    def _watch_status(self, kind: str, name: str, seconds: float) -> Generator[Json, None, None]:
        """Yield the status of an object now and after each change.

        One kubectl that watches takes less of the machine than many that ask. It watches a list, because it
        misses a change between its first two requests if it is given a name.
        """
        selector = ("--field-selector", f"metadata.name={name}")
        words = ("get", kind, *selector, "--watch", "-o", 'jsonpath={.status}{"\\n"}')
        watching = commands.start(self.kubectl_command(*words), self.environment)
        timer = threading.Timer(seconds, watching.kill)
        timer.start()
        with watching:
            try:
                assert watching.stdout is not None
                yield from (json.loads(line) for line in watching.stdout if line.startswith("{"))
            finally:
                timer.cancel()
                watching.kill()

    def run_to_success(self, *jobs: RunBuilder) -> None:
        """Apply TrainingRuns and wait until all have succeeded."""
        self.apply(*jobs)
        for job in jobs:
            status = self.wait_for_phase(job.name, "Succeeded", "Failed")
            assert status["phase"] == "Succeeded", self.kubectl("describe", "tr", job.name).stdout

    def logs(self, pod: str, *words: str) -> str:
        return self.kubectl("logs", pod, *words).stdout


@contextmanager
def user_in_namespace(target: Target, namespace: str) -> Iterator[User]:
    """A user in a new namespace, which is deleted at the end, without waiting for that."""
    user = User(target, namespace)
    user.kubectl("create", "namespace", namespace)
    user.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    try:
        yield user
    finally:
        user.kubectl("delete", "namespace", namespace, "--wait=false", code=None)
