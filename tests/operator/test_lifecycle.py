"""Tests for the operator as a process: start before its CRDs exist, standby, takeover, kill and idle."""

import asyncio
import random
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from argosy.engine.errors import NotFound
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Lease, Secret
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.settings import NAME
from argosy.wire.client import Client as WireClient
from argosy.wire.client import Response
from argosy.wire.origin import Origin
from tests.support.builders import run
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import free_port

CRD = "trainingruns.argosy.dev"

PROGRAM = """
import sys
from pathlib import Path
from argosy.engine.loop import run as run_loop
from argosy.operator.main import run
from argosy.operator.settings import Settings
kubeconfig, namespace, elect = sys.argv[1:]
run_loop(run(Settings(kubeconfig=Path(kubeconfig), namespace=namespace, operator_namespace=namespace,
                      leader_elect=elect == "elect", endpoint="", metrics_address="", probe_address="")))
"""


async def start(scene: Scene, elect: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(scene.server.kubeconfig),
        scene.namespace,
        elect,
        stderr=asyncio.subprocess.PIPE,
        limit=2**20,
    )


async def serving(process: asyncio.subprocess.Process) -> None:
    """Wait until the operator logs that it serves TrainingRuns, however long its start takes."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if b"watching" in line and b"TrainingRun" in line:
            return


async def holder(scene: Scene) -> str:
    try:
        return (await scene.client.get(Lease, NAME, scene.namespace)).spec.holder_identity
    except NotFound:
        return ""


async def metrics(port: int) -> str:
    return (await ask(port, "/metrics")).body.decode()


async def ask(port: int, path: str) -> Response:
    """Return the response of the operator's health server; status 0 while it does not listen."""
    client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        return await client.send("GET", path, {})
    except ConnectionError:
        return Response(0, {}, b"")
    finally:
        await client.close()


def writes(text: str) -> float:
    lines = re.findall(r'argosy_api_requests_total\{code="\w+",method="(\w+)"\} (\S+)', text)
    return sum(float(number) for verb, number in lines if verb not in ("GET", "WATCH"))


def passes(text: str) -> float:
    return sum(map(float, re.findall(r"argosy_reconcile_total\{[^}]*\} (\S+)", text)))


async def test_restarted_operator_writes_nothing_if_nothing_changed(scene: Scene) -> None:
    jobs = 10
    async with scene.operator():
        for number in range(jobs):
            await scene.apply(run(f"job-{number}").role("worker", 2))

        async def all_there() -> bool:
            return len(await scene.pods()) == 2 * jobs

        await scene.until("all pods are there", all_there)
        await scene.report_all("Running")
        for number in range(jobs):
            await scene.until_phase("Running", f"job-{number}")

        async def quiet() -> bool:
            runs = (await scene.client.list(TrainingRun, scene.namespace)).items
            return all(run.status.workers == "2/2" for run in runs)

        await scene.until("all counts are written", quiet)
    port = free_port()
    async with scene.operator(**shown_at(port)):

        async def passed() -> bool:
            return passes(await metrics(port)) >= jobs

        await scene.until("a pass over every job", passed)
        assert writes(await metrics(port)) == 0


async def test_operator_that_starts_before_its_crds_serves_them_once_installed(scene: Scene) -> None:
    await scene.client.delete(CustomResourceDefinition, CRD)

    async def undefined() -> bool:
        try:
            await scene.client.get(CustomResourceDefinition, CRD)
        except NotFound:
            return True
        return False

    await scene.until("the definition is gone", undefined)
    port = free_port()
    async with scene.operator(**shown_at(port)):

        async def ready() -> bool:
            return (await ask(port, "/readyz")).status == 200

        await scene.until("the operator is ready", ready)
        await scene.client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)

        async def applied() -> bool:
            try:
                await scene.apply(run().role("worker", 1))
            except NotFound:
                return False
            return True

        await scene.until("runs can be made", applied)
        await scene.until_pods("mnist-worker-0")


async def test_operator_waits_for_an_api_server_that_starts_later(scene: Scene, tmp_path: Path) -> None:
    """The kubeconfig has a port on which the server listens only later."""
    port = free_port()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(scene.server.kubeconfig.read_text().replace(str(scene.server.port), str(port)))
    await scene.apply(run().role("worker", 1))
    async with scene.operator(kubeconfig=kubeconfig) as operator:
        await asyncio.sleep(0.5)  # long enough for some refused connections
        assert not operator.done()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream = await asyncio.open_connection("127.0.0.1", scene.server.port)
            with suppress(ConnectionError):
                await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))

        async with await asyncio.start_server(relay, "127.0.0.1", port):
            await scene.until_pods("mnist-worker-0")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def test_crd_that_prunes_the_record_is_reported_and_no_pods_are_created(scene: Scene) -> None:
    await scene.client.apply(CustomResourceDefinition, without_record(), force=True)
    async with scene.operator():

        async def is_reported() -> bool:
            await scene.apply(run().role("worker", 1))
            return CRD in (await scene.run()).status.message

        await scene.until("status names the definition", is_reported)
        assert not await scene.pods()
        version = (await scene.run()).metadata.resource_version
        await scene.client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)
        await scene.until_pods("mnist-worker-0")
        assert version != (await scene.run()).metadata.resource_version


async def test_standby_replica_takes_over_when_the_leader_stops(scene: Scene) -> None:
    def led_by(name: str) -> Callable[[], Awaitable[bool]]:
        async def led() -> bool:
            return await holder(scene) == name

        return led

    async with scene.operator(leader_elect=True, identity="first") as first:
        await scene.until("the first leads", led_by("first"))
        async with scene.operator(leader_elect=True, identity="second"):
            await scene.apply(run("one").role("worker", 1))
            await scene.until_pods("one-worker-0")
            scene.operators.remove(first)
            first.cancel()
            await scene.until("the standby leads", led_by("second"))
            await scene.apply(run("two").role("worker", 1))
            await scene.until_pods("one-worker-0", "two-worker-0")


async def test_sigterm_releases_the_lease_and_exits_with_0(scene: Scene) -> None:
    process = await start(scene, "elect")

    async def leads() -> bool:
        return await holder(scene) != ""

    await scene.until("it leads", leads)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await process.wait() == 0
    assert await holder(scene) == ""


async def test_credentials_are_created_once(scene: Scene) -> None:
    async def key() -> dict[str, str]:
        return (await scene.client.get(Secret, f"{NAME}-tls", scene.namespace)).data

    async def keys_exist() -> bool:
        try:
            return bool(await key())
        except NotFound:
            return False

    async with scene.operator(), scene.operator():
        await scene.until("the keys are there", keys_exist)
    before = await key()
    async with scene.operator():
        await scene.apply(run().role("worker", 1))
        await scene.until_pods("mnist-worker-0")
    assert await key() == before


async def test_run_succeeds_although_its_operator_is_killed_repeatedly(scene: Scene) -> None:
    """The only failure is counted once and the result is correct, whenever the operator is killed."""
    chance = random.Random(7)
    workers = [f"mnist-worker-{index}" for index in range(4)]
    await scene.apply(run().role("worker", 4, restart="OnFailure"))
    ended = asyncio.Event()

    async def torment() -> int:
        kills = 0
        while not ended.is_set():
            process = await start(scene)
            await serving(process)
            with suppress(TimeoutError):
                # Each operator may live longer than the last: on a slow machine too, one gets far enough.
                async with asyncio.timeout(chance.uniform(0.0, 1.0 + kills / 4)):
                    await ended.wait()
            process.kill()
            await process.wait()
            kills += 1
        return kills

    async def live() -> None:
        before = await scene.until_pods(*workers)
        await scene.report_all("Running")
        await scene.until_phase("Running")
        await scene.report(workers[2], "Failed", code=1)

        async def replaced() -> bool:
            pod = (await scene.pods()).get(workers[2])
            return pod is not None and pod.metadata.uid != before[workers[2]].metadata.uid

        await scene.until("the failed pod is another", replaced)
        after = await scene.pods()
        kept = [name for name in workers if after[name].metadata.uid == before[name].metadata.uid]
        assert kept == [workers[0], workers[1], workers[3]]
        await scene.report_all("Succeeded")
        await scene.until_phase("Succeeded")

    torture = asyncio.create_task(torment())
    try:
        await live()
    finally:
        ended.set()
        kills = await torture
    assert kills >= 1
    assert (await scene.run()).status.restarts == 1


def without_record() -> dict[str, object]:
    """Return our CRD as another version might define it, without `status.argosy`."""
    return _without(crd_for(TrainingRun))


def _without(value: dict[str, object]) -> dict[str, object]:
    return {
        key: _without(part)
        if isinstance(part, dict)
        else [_without(item) if isinstance(item, dict) else item for item in part]
        if isinstance(part, list)
        else part
        for key, part in value.items()
        if key != "argosy"
    }


async def test_disabled_features_are_not_watched(scene: Scene) -> None:
    port = free_port()
    off = {"gang_backend": "none", "remote_exec": False, "apis": (ARGOSY,)}
    async with scene.operator(**off, **shown_at(port)):
        await scene.apply(run().role("worker", 1))
        await scene.until_pods("mnist-worker-0")
        watched = set(re.findall(r'argosy_cache_synced\{kind="(\w+)"\} 1', await metrics(port)))
        kinds = {"CustomResourceDefinition", "Node", "Pod", "PodDisruptionBudget", "Service", "TrainingRun"}
        assert watched == kinds
        await scene.apply(run("gang").role("worker", 1).gang())

        async def is_reported() -> bool:
            return "gang scheduling is disabled" in (await scene.run("gang")).status.message

        await scene.until("the status says that there is no gang scheduler", is_reported)
