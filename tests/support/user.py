"""A user of a target: the `argosy` command and kubectl, in a namespace of his own.

What a conformance test does, it does through a user, so that it cannot tell what it stands on.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from tests.support import commands
from tests.support.builders import RunBuilder
from tests.support.commands import ARGOSY, KUBECTL
from tests.support.targets import Target
from tests.support.waiting import wait_for

Json = dict[str, object]

_IN_A_NAMESPACE: Final = frozenset(("run", "ps", "logs", "describe", "scale", "rm"))
_PATIENCE: Final = 90.0


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
        """Run kubectl in the namespace, as the administrator; another code than wanted fails the test."""
        return commands.run(
            self.kubectl_command(*words), self.environment, code=code, stdin=stdin, timeout=timeout
        )

    def kubectl_command(self, *words: str) -> tuple[str, ...]:
        return (str(KUBECTL), "--namespace", self.namespace, *words)

    def argosy(
        self, *words: str, code: int | None = 0, stdin: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `argosy …` in the namespace; a code other than wanted (None: any) fails the test."""
        return commands.run(
            self.argosy_command(*words), self.environment, code=code, stdin=stdin, timeout=timeout
        )

    def argosy_command(self, *words: str) -> tuple[str, ...]:
        where = ("-n", self.namespace) if words[0] in _IN_A_NAMESPACE else ()
        return (str(ARGOSY), words[0], *where, *words[1:])

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `argosy …` and return at once; its output is to be read from the pipe."""
        return commands.start(self.argosy_command(*words), self.environment)

    def get(self, *words: str) -> Json:
        """An object, or a list of them, as kubectl gets it."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=Json)

    def apply(self, *objects: Mapping[str, object] | RunBuilder) -> None:
        built = [one.build() if isinstance(one, RunBuilder) else one for one in objects]
        for one in built:
            cast("Json", one["metadata"]).pop("namespace", None)
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in built))

    def status(self, name: str) -> Json:
        """The status of a TrainingRun; empty as long as it has none."""
        return cast("Json", self.get("tr", name).get("status", {}))

    def wait_for_phase(self, name: str, *phases: str, seconds: float = _PATIENCE) -> Json:
        """The status of a TrainingRun once it has one of these phases."""
        found: Json = {}

        def reached() -> bool:
            found.update(self.status(name))
            return found.get("phase") in phases

        wait_for(reached, lambda: self.kubectl("describe", "tr", name).stdout, seconds)
        return found

    def run_to_success(self, *jobs: RunBuilder) -> None:
        """Apply the runs and wait until all have succeeded."""
        self.apply(*jobs)
        for job in jobs:
            status = self.wait_for_phase(job.name, "Succeeded", "Failed")
            assert status["phase"] == "Succeeded", self.kubectl("describe", "tr", job.name).stdout

    def logs(self, pod: str, *words: str) -> str:
        return self.kubectl("logs", pod, *words).stdout


@contextmanager
def user_in_namespace(target: Target, namespace: str) -> Iterator[User]:
    """A user whose namespace goes with all that is in it; nobody waits for that."""
    made = User(target, namespace)
    made.kubectl("create", "namespace", namespace)
    made.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    try:
        yield made
    finally:
        made.kubectl("delete", "namespace", namespace, "--wait=false", code=None)
