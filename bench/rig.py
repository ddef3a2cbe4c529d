"""The rig of `bench.kubernetes`: a kube-apiserver, and a core that operator and baseline client share."""

import contextlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec

from argosy.engine.client import Client
from argosy.kinds.resource import Resource
from bench.baseline_client import BaselinePod
from bench.job_apis import BenchApi
from bench.namespace import Namespace, watched_namespace
from bench.processes import Operator, operator, running
from tests.support.servers import Server

_WRITE_VERB = re.compile(r'verb="(?:POST|PUT|PATCH|APPLY)"')


class Rig:
    """The API server with its simulated nodes, and the core that operator and baseline client share."""

    def __init__(self, server: Server, client: Client, core: int, settle_seconds: float) -> None:
        self.server = server
        self.client = client
        self.core = core
        self.settle_seconds = settle_seconds
        """How long to wait for late writes of the operator before its usage is read."""
        self._numbers = itertools.count()
        self._server_file = server.folder / "server.json"
        self._server_file.write_bytes(msgspec.json.encode(server, enc_hook=str))

    def namespace(self, api: BenchApi) -> contextlib.AbstractAsyncContextManager[Namespace]:
        return watched_namespace(self.client, f"bench-{next(self._numbers)}", api.api.resource)

    async def collect_garbage(self) -> None:
        """Let the API server free the memory of earlier rounds, so that no round pays for another."""
        await self.client.request("GET", "/debug/pprof/heap?gc=1")

    async def writes(self, resource: Resource) -> tuple[float, float]:
        """Return how many statuses of a resource and how many events the API server has accepted."""
        metrics = (await self.client.request("GET", "/metrics")).decode()
        statuses = _accepted_writes(metrics, resource.plural, "status")
        return statuses, _accepted_writes(metrics, "events", "")

    def operator(self) -> contextlib.AbstractContextManager[Operator]:
        return operator(self.server, core=self.core)

    @contextlib.contextmanager
    def baseline(self, pods: Sequence[BaselinePod], *options: str) -> Iterator["Baseline"]:
        """Run the baseline client; yield it when it is ready to create these pods."""
        file = self.server.folder / "baseline-pods.json"
        file.write_bytes(msgspec.json.encode(pods))
        with self.baseline_process(str(file), *options) as process:
            client = Baseline(process)
            client.wait_for("ready")
            yield client

    def baseline_process(self, *options: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "bench.baseline_client", str(self._server_file), *options]
        return running(command, core=self.core, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Baseline:
    """The process of the baseline client."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if line != word:
            raise RuntimeError(f"the baseline client printed {line!r}, not {word!r}")

    def start(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def _accepted_writes(metrics: str, resource: str, subresource: str) -> float:
    """Return how many writes of a resource the API server has accepted, by its metric of requests."""
    labels = (f'resource="{resource}"', f'subresource="{subresource}"', 'code="2')
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if line.startswith("apiserver_request_total{")
        and all(label in line for label in labels)
        and _WRITE_VERB.search(line)
    )
