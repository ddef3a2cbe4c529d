"""`python -m tests.support.simulate_containers --kubeconfig FILE`: what runs in the pods of simulated nodes.

Commands in containers are answered by an `ExecServer`, whose port it prints. Each running launcher with a
sidecar that keeps its host list asks the operator for the list, and acknowledges each one, as the sidecar
does: with a new connection for each request. Files are not written. Ends with SIGTERM.
"""

import argparse
import asyncio
import json
import signal
import ssl
import sys
from collections.abc import Mapping
from functools import cache
from typing import ClassVar
from urllib.parse import urlencode

from msgspec import Struct, field

from argosy.engine import loop
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.labels import HOSTS_CONTAINER, ROLE
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.trainingjob import LAUNCHER
from argosy.wire.client import Client as HttpClient
from argosy.wire.origin import Origin
from tests.support.exec_server import ExecServer

WAIT_SECONDS = 30
RETRY_SECONDS = 1.0


class _Variable(Struct, frozen=True):
    name: str
    value: str = ""


class _Container(Struct, frozen=True):
    name: str
    env: tuple[_Variable, ...] = ()


class _Spec(Struct, frozen=True, rename="camel"):
    init_containers: tuple[_Container, ...] = ()


class _Status(Struct, frozen=True):
    phase: str = ""


class LauncherPod(Struct, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)

    @property
    def sidecar_environment(self) -> Mapping[str, str]:
        """Return the variables of the sidecar that keeps the host list; empty if the pod has none."""
        for container in self.spec.init_containers:
            if container.name == HOSTS_CONTAINER:
                return {variable.name: variable.value for variable in container.env}
        return {}


class Sidecars:
    """Runs the sidecar of every launcher that a cache shows as Running."""

    def __init__(self, pods: Cache[LauncherPod]) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        pods.subscribe(self._pod_changed)

    def _pod_changed(self, change: Change[LauncherPod]) -> None:
        pod = change.new or change.old
        if pod is None:
            return
        meta = pod.metadata
        runs = change.new is not None and pod.status.phase == "Running" and meta.deletion_timestamp is None
        if not runs:
            if task := self._tasks.pop(meta.uid, None):
                task.cancel()
        elif meta.uid not in self._tasks and pod.sidecar_environment:
            self._tasks[meta.uid] = asyncio.create_task(Sidecar(pod).run())


class Sidecar:
    """Asks for the host list of a job again and again, and acknowledges each version."""

    def __init__(self, pod: LauncherPod) -> None:
        environment, meta = pod.sidecar_environment, pod.metadata
        self._origin = Origin.from_url(environment["ARGOSY_URL"])
        self._path = f"/v1/jobs/{environment['ARGOSY_NAMESPACE']}/{environment['ARGOSY_JOB']}/hosts"
        self._headers = {"Authorization": f"Bearer {environment['ARGOSY_TOKEN']}"}
        self._pod = {"pod": meta.name, "uid": meta.uid}
        self._context = _tls(environment.get("ARGOSY_CA", "")) if self._origin.tls else None

    async def run(self) -> None:
        etag = acknowledged = ""
        while True:
            query = urlencode({"etag": etag, "wait": f"{WAIT_SECONDS}s"})
            answer = await self._send("GET", f"{self._path}?{query}")
            etag = str(answer["etag"]) if answer else etag
            if etag == acknowledged:
                await asyncio.sleep(0 if answer else RETRY_SECONDS)
            elif await self._send("POST", f"{self._path}/ack", {**self._pod, "etag": etag}) is not None:
                acknowledged = etag

    async def _send(self, method: str, target: str, body: object = None) -> dict[str, object] | None:
        """Return the answer of the operator; None if it has none, or rejects the request."""
        content = None if body is None else json.dumps(body).encode()
        client = HttpClient(self._origin)
        try:
            response = await client.send(
                method, target, self._headers, content, context=self._context, timeout=WAIT_SECONDS + 15
            )
        except OSError:
            return None
        finally:
            await client.close()
        if response.status != 200:
            return None
        decoded: dict[str, object] = json.loads(response.body)
        return decoded


@cache
def _tls(authority: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority or None)


async def _simulate(kubeconfig: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        Client(Connection.from_kubeconfig(kubeconfig), user_agent="argosy-simulator") as client,
        ExecServer() as server,
    ):
        pods = Cache(client, LauncherPod, labels=f"{ROLE}={LAUNCHER}")
        sidecars = Sidecars(pods)
        watching = asyncio.create_task(pods.run())
        await pods.wait_synced()
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await stop.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        del sidecars


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.support.simulate_containers", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    loop.run(_simulate(parser.parse_args().kubeconfig))


if __name__ == "__main__":
    main()
