"""Samples of adapters as real runs: each container is a probe that prints what it was given and finds.

A probe resolves every host that its variables name, prints the result in one line, and exits with the code
that it is told. So pods fail and succeed when a check wants it, and no pod leaves before all have looked.
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
"""The environment of a pod, and under FOUND the addresses of the hosts that it names."""

_CODE: Final = "/tmp/argosy-code"  # noqa: S108 - in a pod made for the check
_PROBE: Final = f"""
import json, os, re, socket, sys, time
domain = ".svc."
words = [word for value in os.environ.values() for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9.-]*", value)]
found = {{}}
for host in sorted({{word for word in words if domain in word and os.environ["ARGOSY_JOB"] in word}}):
    while host not in found:
        try:
            found[host] = socket.gethostbyname(host)
        except OSError:
            time.sleep(0.2)
print("told", json.dumps({{**os.environ, "FOUND": json.dumps(found)}}), flush=True)
while not os.path.exists("{_CODE}"):
    time.sleep(0.1)
sys.exit(int(open("{_CODE}").read()))
"""


class ProbedRun:
    """A run of a sample, whose pods wait to be told how to end."""

    def __init__(self, namespace: Namespace, framework: str, sample: Sample) -> None:
        self.namespace = namespace
        self.name = f"probe-{framework}-{zlib.crc32(sample.title.encode()) % 1000}"
        self.sizes = dict(sample.roles)
        """How many pods of each role to wait for."""
        self._manifest = _manifest(self.name, framework, sample)

    def start(self) -> None:
        self.namespace.apply(self._manifest)

    def variables(self) -> dict[str, Variables]:
        """Return what every pod was given, by host name, once all have looked up the others."""
        found: dict[str, Variables] = {}
        self.namespace.wait_until(lambda: self._all_printed(found), lambda: self._describe(list(found)))
        return found

    def end(self, role: str, code: int, *indexes: int) -> None:
        """Let pods of a role exit with this code; all of them if no index is given."""
        for index in indexes or range(self.sizes[role]):
            pod = f"{self.name}-{role}-{index}"
            write = f"echo {code} > {_CODE}.new && mv {_CODE}.new {_CODE}"  # never read half written
            done = self.namespace.kubectl("exec", pod, "-c", "main", "--", "sh", "-c", write, code=None)
            # The container may be gone before the shell in it, which is killed then.
            require(done.returncode in (0, 137), done.stderr + self._describe([]))

    def pods(self) -> dict[str, tuple[str, str]]:
        """Return the uid and the address of every pod, by host name."""
        listed = self.namespace.get("pods", "-l", f"{labels.JOB}={self.name}")
        found = cast("list[dict[str, dict[str, str]]]", listed["items"])
        return {
            pod["spec"]["hostname"]: (pod["metadata"]["uid"], pod["status"].get("podIP", "")) for pod in found
        }

    def wait_until_replaced(self, before: Mapping[str, tuple[str, str]], *hosts: str) -> None:
        """Wait until there are other pods than before under these host names."""

        def replaced() -> bool:
            now = self.pods()
            return all(host in now and now[host][0] != before[host][0] for host in hosts)

        self.namespace.wait_until(replaced, lambda: self._describe([]))

    def _all_printed(self, found: dict[str, Variables]) -> bool:
        found.clear()
        for host in [f"{self.name}-{role}-{n}" for role, size in self.sizes.items() for n in range(size)]:
            log = self.namespace.kubectl("logs", host, "-c", "main", code=None).stdout
            line = next((line for line in log.splitlines() if line.startswith("told ")), "")
            if not line:
                return False
            found[host] = json.loads(line.removeprefix("told "))
        return True

    def _describe(self, ready: list[str]) -> str:
        described = self.namespace.kubectl("describe", "tr", self.name, code=None).stdout
        return f"only {ready} have looked up the others\n{described}"


def _manifest(name: str, framework: str, sample: Sample) -> Json:
    """Return the TrainingRun of a sample; its image is any that has a POSIX shell and python3."""
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
