"""Tests for random jobs next to a valid one, with an operator and both API servers.

Every stored job runs or its status says what is wrong with it, no reconcile fails, and a valid spec cures
the jobs that did not run.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import cast

import msgspec
import pytest
from msgspec import Struct

from argosy.engine.client import PatchType
from argosy.engine.dynamic import AnyObject, dynamic_kind
from argosy.engine.errors import ApiError
from argosy.kinds.aresjob import AresJob
from argosy.kinds.trainingrun import TrainingRun
from tests.support.aresjobs import job as ares_job
from tests.support.builders import run
from tests.support.fuzz_specs import ARES_SPECS, RUN_SPECS, sample
from tests.support.operator_harness import Scene
from tests.support.strategies import Strategy

Json = Mapping[str, object]


class Api(Struct, frozen=True):
    kind: type[AnyObject]
    specs: Strategy
    number: int
    """How many of them; of TrainingRuns the definition refuses most."""
    right: Json
    reason: Callable[[Json], str]
    """Why a job waits for an edit; empty if it does not."""


def _of_ares(status: Json) -> str:
    conditions = cast("list[Json]", status.get("conditions", []))
    failed = next(
        (
            condition
            for condition in conditions
            if condition["type"] == "Failed" and condition["status"] == "True"
        ),
        {},
    )
    return str(failed.get("message")) if failed.get("reason") == "InvalidDefinition" else ""


def _of_run(status: Json) -> str:
    return str(status.get("message")) if status.get("reason") == "InvalidSpec" else ""


APIS = {
    "AresJob": Api(dynamic_kind(AresJob.resource), ARES_SPECS, 20, ares_job().spec, _of_ares),
    "TrainingRun": Api(
        dynamic_kind(TrainingRun.resource), RUN_SPECS, 100, run().role("worker", 1).spec, _of_run
    ),
}


@pytest.mark.parametrize("kind", APIS)
async def test_random_specs_do_not_affect_other_jobs_and_are_cured_by_an_edit(
    scene: Scene, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    under = APIS[kind]
    async with scene.operator():
        names = await _stored(scene, under)
        await _create(scene, under, "honest", under.right)
        statuses = await _judged(scene, under, ["honest", *names])
        await _until_running(scene, under, ["honest"])
        wrong = {name: message for name, status in statuses.items() if (message := under.reason(status))}
        cured = [name for name in wrong if "startTime" not in statuses[name]]  # others keep their framework
        assert len(cured) >= 4
        assert all(message.startswith(("spec.", "metadata.")) for message in wrong.values()), wrong
        for name in cured:
            edit = {"op": "replace", "path": "/spec", "value": under.right}
            await scene.client.patch(under.kind, name, [edit], scene.namespace, type=PatchType.JSON)
        await _until_running(scene, under, cured)
    failed = [record for record in caplog.records if record.exc_info and "pass" in record.message]
    assert not failed, failed[0].exc_info


async def test_job_with_the_longest_name_is_reported_by_an_event(scene: Scene) -> None:
    under, name = APIS["AresJob"], "n" * 253
    async with scene.operator(remote_exec=False):
        await _create(scene, under, name, under.right)
        status = (await _judged(scene, under, [name]))[name]
        assert under.reason(status).startswith("metadata.name: the name of its last pod of role worker, 'nnn")

        async def is_reported() -> bool:
            return any(event.involved_object.name == name for event in await scene.events())

        await scene.until("it is reported by an event", is_reported)


@pytest.mark.parametrize("api", ["kubernetes"], indirect=True)
async def test_too_deeply_nested_object_is_reported_and_cured_by_an_edit(scene: Scene) -> None:
    """A real API server stores such an object; it must not crash clients that read it."""
    under = APIS["AresJob"]
    deep = b'{"frameworkType":"custom","unheardOf":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    body = b'{"apiVersion":"ares.io/v1","kind":"AresJob","metadata":{"name":"deep"},"spec":' + deep + b"}"
    path = f"/apis/ares.io/v1/namespaces/{scene.namespace}/aresjobs"
    async with scene.operator(remote_exec=False):
        await scene.client.request("POST", path, body=body)

        async def is_reported() -> bool:
            messages = [
                event.message for event in await scene.events() if event.involved_object.name == "deep"
            ]
            return any("spec: is nested too deeply" in message for message in messages)

        await scene.until("its status says what is wrong", is_reported)
        await _create(scene, under, "honest", under.right)
        await _until_running(scene, under, ["honest"])
        cure = msgspec.json.encode([{"op": "replace", "path": "/spec", "value": under.right}])
        headers = {"Content-Type": PatchType.JSON.value}
        await scene.client.request("PATCH", f"{path}/deep", body=cure, headers=headers)
        await _until_running(scene, under, ["deep"])


async def _stored(scene: Scene, under: Api) -> list[str]:
    """Create random jobs; return the names of those that the server accepts."""
    names: list[str] = []
    for number, spec in enumerate(sample(under.specs, under.number)):
        if isinstance(policy := spec.get("runPolicy"), dict):
            policy.pop("ttlSecondsAfterFinished", None)  # or it would go while it is looked at
        try:
            await _create(scene, under, f"p{number}", spec)
        except ApiError:
            continue
        names.append(f"p{number}")
    return names


async def _create(scene: Scene, under: Api, name: str, spec: Json) -> None:
    await scene.client.create(under.kind, {"metadata": {"name": name}, "spec": spec}, scene.namespace)


async def _all(scene: Scene, under: Api) -> dict[str, AnyObject]:
    return {job.metadata.name: job for job in (await scene.client.list(under.kind, scene.namespace)).items}


async def _judged(scene: Scene, under: Api, names: Collection[str]) -> dict[str, Json]:
    """Return the statuses once the operator has handled all specs and the server has their pods."""
    statuses: dict[str, Json] = {}

    async def judged() -> bool:
        jobs, pods = await _all(scene, under), await scene.pods()
        for name in set(names) - set(statuses):
            status = cast("Json", jobs[name].raw.get("status", {}))
            observed = status.get("observedGeneration") == jobs[name].metadata.generation
            has_pods = any(pod.startswith(f"{name}-") for pod in pods)
            over = status.get("phase") in ("Pending", "Succeeded", "Failed")
            if observed and (has_pods or over or under.reason(status)):
                statuses[name] = status
        return len(statuses) == len(names)

    await scene.until("all are judged", judged)
    return statuses


async def _until_running(scene: Scene, under: Api, names: Collection[str]) -> None:
    async def running() -> bool:
        for name, pod in (await scene.pods()).items():
            if pod.status.phase != "Running":
                await scene.report(name, "Running")
        jobs = await _all(scene, under)
        return all(cast("Json", jobs[name].raw["status"]).get("phase") == "Running" for name in names)

    await scene.until(f"{names} run", running)
