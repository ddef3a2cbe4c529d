"""Tests for when a replica may work: caches are synced, and a gate waits for reconciles in progress."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.settings import SpotSettings
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import Forbidden
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.metrics import Metrics
from argosy.engine.objects import Key
from argosy.kinds.checkpoint_spec import CheckpointLevel, CheckpointSpec
from argosy.kinds.kubernetes import ConfigMapMetadata
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore
from argosy.kinds.spot import SpotInstanceJob
from argosy.kinds.trainingrun import TrainingRun, TrainingRunSpec
from argosy.operator.apis.base import StartContext
from argosy.operator.apis.et import ET
from argosy.operator.apis.spot import SPOT
from argosy.operator.apis.spot_migration import add_migrations, add_pod_reviews
from argosy.operator.drain_gate import DrainGate
from argosy.operator.job_metrics import JobMetrics
from argosy.operator.manager import Manager
from argosy.operator.settings import Settings
from argosy.plan.actions import Exec
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from tests.support.captured_logs import captured_lines
from tests.support.fake_exec import FakeExec
from tests.support.waiting import eventually

KEY, OTHER = Key("default", "a"), Key("default", "b")


async def test_drain_waits_for_a_running_reconcile_and_admits_no_other() -> None:
    gate, entered, leave = DrainGate(), asyncio.Event(), asyncio.Event()
    ended: list[Key] = []

    async def slow(key: Key) -> Requeue | None:
        entered.set()
        await leave.wait()
        ended.append(key)
        return None

    controller: Controller[Key] = Controller("test", gate.guard(slow))
    gate.open()
    working = asyncio.create_task(controller.run())
    controller.enqueue(KEY)
    await entered.wait()
    shutting = asyncio.create_task(gate.drain(10.0))
    await asyncio.sleep(0)
    controller.enqueue(OTHER)
    leave.set()
    await shutting
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert ended == [KEY]


async def test_drain_stops_waiting_for_a_reconcile_after_its_timeout() -> None:
    gate, entered = DrainGate(), asyncio.Event()

    async def endless(key: Key) -> Requeue | None:
        entered.set()
        await asyncio.Event().wait()
        return None

    gate.open()
    stuck = asyncio.ensure_future(gate.guard(endless)(KEY))
    await entered.wait()
    await gate.drain(0.05)
    assert not stuck.done()
    stuck.cancel()


async def test_closed_gate_requeues_without_a_reconcile() -> None:
    async def never(key: Key) -> Requeue | None:
        raise AssertionError

    assert await DrainGate().guard(never)(KEY) == Requeue(1.0)


def make_manager(*, endpoint_only: bool = False) -> Manager:
    client = Client(Connection(server="https://127.0.0.1:1"), metrics=Metrics(CollectorRegistry()))
    return Manager(
        client,
        namespace=None,
        clock=SystemClock(),
        recorder=Recorder(client, "test"),
        pods=PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid),
        job_metrics=JobMetrics(CollectorRegistry()),
        concurrency=1,
        endpoint_only=endpoint_only,
    )


async def test_end_of_a_term_cancels_commands_before_it_waits_for_reconciles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands, leave = FakeExec(), asyncio.Event()
    monkeypatch.setattr("argosy.operator.manager.PodExec", lambda _client: commands)
    manager = make_manager()
    manager.add_jobs(training_run_api())
    monkeypatch.setattr(manager, "not_ready", lambda: "")
    calls = BackgroundCalls(manager.background)

    async def run_a_command(key: Key) -> Requeue | None:
        calls.update(key, "u", [Exec("check", "launcher", "u", "main", ("true",))], recorded=True)
        await leave.wait()
        calls.update(key, "u", [Exec("late", "launcher", "u", "main", ("true",))], recorded=True)
        return None

    with captured_lines():
        term = asyncio.create_task(manager.run_controllers())
        await eventually(lambda: manager.gate.is_open)
        reconcile = asyncio.ensure_future(manager.gate.guard(run_a_command)(KEY))
        await eventually(lambda: commands.running == ["default/check"])
        term.cancel()
        await eventually(lambda: commands.cancelled == ["default/check"])
        assert not term.done()
        leave.set()
        await asyncio.gather(term, reconcile, return_exceptions=True)
    assert commands.started == ["default/check"]


async def test_operator_that_may_not_read_crds_is_ready_once_its_jobs_are_cached() -> None:
    serving = make_manager()
    serving.add_jobs(training_run_api())
    serving.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "no right to read definitions")
    assert "TrainingRun" in serving.not_ready()


async def test_kinds_of_children_are_watched_only_if_an_api_declares_them() -> None:
    serving = make_manager()
    serving.add_jobs(training_run_api())
    assert "ConfigMap" not in serving.not_ready()
    for _ in range(2):
        serving.add_jobs(replace(training_run_api(), child_kinds=(ConfigMapMetadata,)))
    assert serving.not_ready().count("ConfigMap") == 1


async def test_each_kind_of_elastic_training_is_watched_once() -> None:
    manager = make_manager()
    context = StartContext(settings=Settings(), connection=Connection(server="https://127.0.0.1:1"))
    async with ET.start(context) as running:
        running.add_controllers(manager)
        manager.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "")  # all may be served
        waiting = Counter(manager.not_ready().partition(": ")[2].split(", "))
    assert {kind: waiting[kind] for kind in ("TrainingJob", "ScaleIn", "ScaleOut")} == {
        "TrainingJob": 1,
        "ScaleIn": 1,
        "ScaleOut": 1,
    }


async def test_pods_of_checkpoint_restores_are_watched_once_there_is_a_restore() -> None:
    manager = make_manager()
    add_migrations(manager, SpotSettings())
    manager.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "")  # all may be served
    assert "Pod" in {kind.resource.kind for kind in manager._kinds}
    assert "Pod" not in watched_kinds(manager)
    [restores] = (kind.cache for kind in manager._kinds if kind.resource.kind == "CheckpointRestore")
    assert isinstance(restores, Cache)
    meta = ObjectMeta(name="again", namespace="default", uid="r", resource_version="7")
    restores.put(CheckpointRestore(meta))
    assert "Pod" in watched_kinds(manager)


@pytest.mark.parametrize("first", ["reviews", "reconcilers"])
async def test_reviews_of_pods_wait_for_all_backups_whoever_else_needs_them(first: str) -> None:
    manager = make_manager()
    if first == "reviews":
        add_pod_reviews(manager)
        add_migrations(manager, SpotSettings())
    else:
        add_migrations(manager, SpotSettings())
        add_pod_reviews(manager)
    manager.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "")  # all may be served
    assert "CheckpointBackup" in manager.not_ready()
    needed = [kind for kind in manager._kinds if kind.cache is manager.sources.shared(CheckpointBackup)]
    assert [kind.wanted for kind in needed] == [None]


@pytest.mark.parametrize("kind", [SpotInstanceJob, MachinePool])
async def test_pods_are_watched_for_the_first_object_of_any_kind_that_looks_at_them(
    kind: type[SpotInstanceJob | MachinePool],
) -> None:
    manager = make_manager()
    context = StartContext(settings=Settings(), connection=Connection(server="https://127.0.0.1:1"))
    async with SPOT.start(context) as running:
        running.add_controllers(manager)
    [pods] = (watched for watched in manager._kinds if watched.cache.kind is ClusterPod)
    assert pods.wanted is not None
    assert not pods.wanted.is_set()
    [objects] = (watched.cache for watched in manager._kinds if watched.cache.kind is kind)
    assert isinstance(objects, Cache)
    objects.put(kind(ObjectMeta(name="first", namespace="default", uid="u", resource_version="7")))
    assert pods.wanted.is_set()


async def test_replica_that_only_answers_pods_watches_no_children_on_demand() -> None:
    """An observer of AresJobs may not list them."""
    manager = make_manager(endpoint_only=True)
    manager.add_jobs(ares_job_api())
    manager.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "")  # all may be served
    assert "CheckpointBackup" not in {kind.resource.kind for kind in manager._kinds}


async def test_backups_are_watched_once_a_run_saves_processes() -> None:
    manager = make_manager()
    manager.add_jobs(training_run_api())
    manager.definitions.crds.watcher.last_error = Forbidden(403, "Forbidden", "")  # all may be served
    assert "CheckpointBackup" not in manager.not_ready()
    [runs] = (kind.cache for kind in manager._kinds if kind.resource.kind == "TrainingRun")
    assert isinstance(runs, Cache)
    for number, level in enumerate(("", "App", "Process")):
        assert "CheckpointBackup" not in watched_kinds(manager)
        meta = ObjectMeta(name=f"run-{number}", namespace="a", uid=f"u-{number}", resource_version="7")
        checkpoint = CheckpointSpec(level=CheckpointLevel(level)) if level else None
        runs.put(TrainingRun(meta, TrainingRunSpec(framework="custom", roles={}, checkpoint=checkpoint)))
    assert "CheckpointBackup" in watched_kinds(manager)


def watched_kinds(manager: Manager) -> set[str]:
    """Return the kinds that are watched, once the cluster serves them."""
    return {kind.resource.kind for kind in manager._kinds if kind.wanted is None or kind.wanted.is_set()}
