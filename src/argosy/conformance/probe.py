"""Runs samples of adapters with a probe in every container.

A probe resolves every host name in its variables, prints variables and addresses in one line, and waits for a
file with its exit code. So the checks decide when a pod fails or succeeds, and no pod exits before all have
resolved the others.
"""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Final, cast

from argosy.conformance.contract import require
from argosy.conformance.namespace import Namespace
from argosy.frameworks.base import Sample
from argosy.kinds import labels
from argosy.kinds.meta import Json

Variables = dict[str, str]
"""The environment of a pod, and under ADDRESSES the addresses of the host names in it."""

_EXIT_CODE_FILE: Final = "/tmp/argosy-code"  # noqa: S108 - in a pod made for the check
_PROBE: Final = f"""
import json, os, re, socket, sys, time
domain = ".svc."
words = [word for value in os.environ.values() for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9.-]*", value)]
addresses = {{}}
for host in sorted({{word for word in words if domain in word and os.environ["ARGOSY_JOB"] in word}}):
    while host not in addresses:
        try:
            addresses[host] = socket.gethostbyname(host)
        except OSError:
            time.sleep(0.2)
print("variables", json.dumps({{**os.environ, "ADDRESSES": json.dumps(addresses)}}), flush=True)
while not os.path.exists("{_EXIT_CODE_FILE}"):
    time.sleep(0.1)
sys.exit(int(open("{_EXIT_CODE_FILE}").read()))
"""


class ProbedRun:
    """A TrainingRun of a sample whose pods wait for their exit code."""

    def __init__(self, namespace: Namespace, framework: str, sample: Sample) -> None:
        self.namespace = namespace
        self.name = f"probe-{framework}-{zlib.crc32(sample.title.encode()) % 1000}"
        self.sizes = dict(sample.roles)
        """How many pods of each role to wait for."""
        self._manifest = _manifest(self.name, framework, sample)

    def start(self) -> None:
        self.namespace.apply(self._manifest)

    def variables(self) -> dict[str, Variables]:
        """Return the variables of every pod, by host name, as soon as all have resolved the others."""
        by_host: dict[str, Variables] = {}
        self.namespace.wait_until(lambda: self._all_printed(by_host), lambda: self._describe(list(by_host)))
        return by_host

    def end(self, role: str, code: int, *indexes: int) -> None:
        """Let pods of a role exit with this code; all of them without indexes."""
        for index in indexes or range(self.sizes[role]):
            pod = f"{self.name}-{role}-{index}"
            # The probe must not read a half-written file; a rename is atomic.
            write = f"echo {code} > {_EXIT_CODE_FILE}.new && mv {_EXIT_CODE_FILE}.new {_EXIT_CODE_FILE}"
            result = self.namespace.kubectl("exec", pod, "-c", "main", "--", "sh", "-c", write, code=None)
            # The container may exit before the shell of the exec, which is killed then.
            require(result.returncode in (0, 137), result.stderr + self._describe([]))

    def pods(self) -> dict[str, tuple[str, str]]:
        """Return the uid and the address of every pod, by host name."""
        listed = self.namespace.get("pods", "-l", f"{labels.JOB}={self.name}")
        pods = cast("list[dict[str, dict[str, str]]]", listed["items"])
        return {
            pod["spec"]["hostname"]: (pod["metadata"]["uid"], pod["status"].get("podIP", "")) for pod in pods
        }

    def wait_until_replaced(self, before: Mapping[str, tuple[str, str]], *hosts: str) -> None:
        """Wait until new pods have these host names."""

        def replaced() -> bool:
            now = self.pods()
            return all(host in now and now[host][0] != before[host][0] for host in hosts)

        self.namespace.wait_until(replaced, lambda: self._describe([]))

    def _all_printed(self, by_host: dict[str, Variables]) -> bool:
        by_host.clear()
        for host in [f"{self.name}-{role}-{n}" for role, size in self.sizes.items() for n in range(size)]:
            log = self.namespace.kubectl("logs", host, "-c", "main", code=None).stdout
            line = next((line for line in log.splitlines() if line.startswith("variables ")), "")
            if not line:
                return False
            by_host[host] = json.loads(line.removeprefix("variables "))
        return True

    def _describe(self, ready: list[str]) -> str:
        described = self.namespace.kubectl("describe", "tr", self.name, code=None).stdout
        return f"only {ready} have resolved the others\n{described}"


def _manifest(name: str, framework: str, sample: Sample) -> Json:
    """Return the TrainingRun of a sample; its image must have a POSIX shell and python3."""
    image = os.environ.get("ARGOSY_TEST_IMAGE", "local")
    container = {"name": "main", "image": image, "command": ["python3", "-c", _PROBE]}
    roles: Json = {}
    for role, size in sample.roles.items():
        bounds = sample.elastic.get(role)
        elastic = {"elastic": {"min": bounds[0], "max": bounds[1]}} if bounds else {}
        roles[role] = {"replicas": size, "template": {"spec": {"containers": [container]}}, **elastic}
    spec = {
        "framework": framework,
        "roles": roles,
        "options": dict(sample.options),
        "cleanup": "All",
        "limits": {"restarts": 1},
    }
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": spec,
    }
