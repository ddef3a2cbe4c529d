"""A client whose TrainingRun has as many workers as Dask's Adaptive wants: more while tasks wait, then fewer.

`RunWorkers` is what Adaptive has to know of the run. Workers that leave retire when their pods get SIGTERM:
the scheduler moves the results that only they hold. So at the end every result is still the one that was
computed first, although one worker is left.
"""

import asyncio
import json
import os
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from distributed import Client
from distributed.core import rpc
from distributed.deploy import Adaptive, Cluster

TASKS, SECONDS, MINIMUM, MAXIMUM = 48, 0.5, 1, 4
NAME, NAMESPACE = os.environ["ARGOSY_JOB"], os.environ["ARGOSY_NAMESPACE"]
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SCALE = f"/apis/argosy.dev/v1alpha1/namespaces/{NAMESPACE}/trainingruns/{NAME}/scale"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKERS = f"?labelSelector=argosy.dev/job={NAME},argosy.dev/role=worker"
FIRST_TO_GO = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to the API server with the rights of the pod's ServiceAccount."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    token = (ACCOUNT / "token").read_text()
    request = Request(
        f"https://{host}:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
    )
    with urlopen(request, context=ssl.create_default_context(cafile=ACCOUNT / "ca.crt")) as answer:
        return json.load(answer)


class RunWorkers(Cluster):
    """The workers of this TrainingRun, by their addresses; those still to come have made-up names."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self._replicas: int = call("GET", SCALE)["spec"]["replicas"]
        self._leaving: set[str] = set()
        self._loop_runner.start()
        self.sync(self._start)

    async def _start(self) -> None:
        self.scheduler_comm = rpc(os.environ["DASK_SCHEDULER_ADDRESS"])
        await super()._start()

    @property
    def observed(self) -> set[str]:
        names = {worker["name"] for worker in self.scheduler_info["workers"].values()}
        return names - self._leaving

    @property
    def requested(self) -> set[str]:
        to_come = self._replicas - len(self.observed)
        return self.observed | {f"to come {number}" for number in range(to_come)}

    plan = requested

    async def scale(self, n: int) -> None:
        self._replicas = n
        await asyncio.to_thread(call, "PATCH", SCALE, {"spec": {"replicas": n}})

    async def scale_down(self, workers: list[str]) -> None:
        leaving = self.observed & set(workers)
        self._leaving |= leaving
        hosts = {name.rpartition("/")[2].rpartition(":")[0] for name in leaving}
        for pod in (await asyncio.to_thread(call, "GET", PODS + WORKERS))["items"]:
            if pod["status"].get("podIP") in hosts:
                await asyncio.to_thread(call, "PATCH", f"{PODS}/{pod['metadata']['name']}", FIRST_TO_GO)
        await self.scale(self._replicas - len(workers))


class AdaptiveRun(Adaptive):
    """Leaves it to the pods to retire their workers: a worker that ends before its pod would be restarted."""

    async def scale_down(self, workers: list[str]) -> None:
        await self.cluster.scale_down(workers)


def compute(number: int) -> tuple[int, str]:
    """Return a square, and a text that is another one when the task is computed again."""
    time.sleep(SECONDS)
    return number * number, os.urandom(8).hex()


def main() -> None:
    with RunWorkers() as workers, Client() as client:
        workers.adapt(
            Adaptive=AdaptiveRun, minimum=MINIMUM, maximum=MAXIMUM, interval="500ms", target_duration="2s"
        )
        tasks = client.map(compute, range(TASKS), pure=False)
        first = client.gather(tasks)
        most = len({worker for holders in client.who_has(tasks).values() for worker in holders})
        while len(client.nthreads()) > MINIMUM:
            time.sleep(0.2)
        print(f"computed by {most} workers, of which {len(client.nthreads())} is left")
        assert client.gather(tasks) == first, "a task was computed again"
        assert [square for square, _ in first] == [number * number for number in range(TASKS)]
        print("no result was lost")


if __name__ == "__main__":
    main()
