"""Samples of adapters as real runs: each container is a probe that tells what it was given and whom it finds.

A probe resolves every host that its variables name, says so in one line, and ends with the code that it is
told: so pods fail and succeed when a test wants it, and nobody leaves before all have looked.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Final, cast

from argosy.frameworks.base import Sample
from argosy.kinds import labels
from argosy.testing.badday import wait_for
from argosy.testing.builders import RunBuilder, run
from argosy.testing.grounds import IMAGE
from argosy.testing.tenants import Tenant

Told = dict[str, str]
"""The variables of a pod, and under FOUND the addresses of the hosts that they name."""
_PATIENCE: Final = 90.0

_CODE: Final = "/tmp/argosy-code"  # noqa: S108 - in a pod of the test's own
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


class Probed:
    """A run of a sample, whose pods wait to be told how to end."""

    def __init__(self, tenant: Tenant, framework: str, sample: Sample) -> None:
        self.tenant = tenant
        self.name = f"probe-{framework}-{zlib.crc32(sample.title.encode()) % 1000}"
        self.sizes = dict(sample.roles)
        self._run = _run_of(self.name, framework, sample)

    def start(self) -> None:
        self.tenant.apply(self._run)

    def told(self) -> dict[str, Told]:
        """What every pod was given, by host name, once all have looked around."""
        found: dict[str, Told] = {}
        wait_for(lambda: self._all_told(found), lambda: self._state(list(found)), _PATIENCE)
        return found

    def end(self, role: str, code: int, *indexes: int) -> None:
        """Let pods of a role end with this code; all of them if none is named."""
        for index in indexes or range(self.sizes[role]):
            pod = f"{self.name}-{role}-{index}"
            write = f"echo {code} > {_CODE}.new && mv {_CODE}.new {_CODE}"  # never seen half written
            done = self.tenant.kubectl("exec", pod, "-c", "main", "--", "sh", "-c", write, code=None)
            # The container may be gone before the shell in it, which is killed then.
            assert done.returncode in (0, 137), done.stderr + self._state([])

    def scale(self, role: str, size: int) -> None:
        self.sizes[role] = size
        self.tenant.argosy("scale", self.name, str(size), "--role", role)

    def pods(self) -> dict[str, tuple[str, str]]:
        """The uid and the address of every pod, by host name."""
        found = cast("list[dict[str, dict[str, str]]]", self._get_pods()["items"])
        return {
            pod["spec"]["hostname"]: (pod["metadata"]["uid"], pod["status"].get("podIP", "")) for pod in found
        }

    def until_replaced(self, before: Mapping[str, tuple[str, str]], *hosts: str) -> None:
        """Until there are other pods than before under these host names."""

        def replaced() -> bool:
            now = self.pods()
            return all(host in now and now[host][0] != before[host][0] for host in hosts)

        wait_for(replaced, lambda: self._state([]), _PATIENCE)

    def _all_told(self, found: dict[str, Told]) -> bool:
        found.clear()
        for host in [f"{self.name}-{role}-{n}" for role, size in self.sizes.items() for n in range(size)]:
            said = self.tenant.kubectl("logs", host, "-c", "main", code=None).stdout
            line = next((line for line in said.splitlines() if line.startswith("told ")), "")
            if not line:
                return False
            found[host] = json.loads(line.removeprefix("told "))
        return True

    def _get_pods(self) -> dict[str, object]:
        return self.tenant.get("pods", "-l", f"{labels.JOB}={self.name}")

    def _state(self, told: list[str]) -> str:
        return f"only {told} have looked around\n{self.tenant.kubectl('describe', 'tr', self.name).stdout}"


def _run_of(name: str, framework: str, sample: Sample) -> RunBuilder:
    container = {"name": "main", "image": IMAGE, "command": ["python3", "-c", _PROBE]}
    made = run(name, framework=framework).having(options=dict(sample.options), cleanup="All")
    for role, size in sample.roles.items():
        bounds = sample.elastic.get(role)
        elastic = {"elastic": {"min": bounds[0], "max": bounds[1]}} if bounds else {}
        made = made.role(role, size, template={"spec": {"containers": [container]}}, **elastic)
    return made.limits(restarts=1)
