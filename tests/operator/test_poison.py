"""Jobs made at random beside an honest one, in front of an operator and of both API servers.

Whatever the server stores is run or told what is wrong with it, no pass fails, and a right definition cures
what did not run.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import cast

import pytest
from msgspec import Struct

from argosy.engine.client import PatchType
from argosy.engine.dynamic import AnyObject, dynamic
from argosy.engine.errors import ApiError, NotFound
from argosy.kinds.aresjob import AresJob, AresJobKind
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.arbitrary import Strategy
from argosy.testing.aresjobs import job as ares_job
from argosy.testing.builders import run
from argosy.testing.poison import ARES_SPECS, RUN_SPECS, drawn
from argosy.testing.scene import Scene

Json = Mapping[str, object]
NUMBER = 50


class Api(Struct, frozen=True):
    kind: type[AnyObject]
    specs: Strategy
    right: Json
    reason: Callable[[Json], str]
    """Why a job waits for an edit; empty if it does not."""


def _of_ares(status: Json) -> str:
    found = cast("list[Json]", status.get("conditions", []))
    failed = next((one for one in found if one["type"] == "Failed" and one["status"] == "True"), {})
    return str(failed.get("message")) if failed.get("reason") == "InvalidDefinition" else ""


def _of_run(status: Json) -> str:
    return str(status.get("message")) if status.get("reason") == "InvalidSpec" else ""


APIS = {
    "AresJob": Api(dynamic(AresJob.resource), ARES_SPECS, ares_job().spec, _of_ares),
    "TrainingRun": Api(dynamic(TrainingRun.resource), RUN_SPECS, run().role("worker", 1).spec, _of_run),
}


@pytest.fixture
async def defined(scene: Scene) -> AsyncIterator[Scene]:
    await scene.client.apply(CustomResourceDefinition, crd_for(AresJobKind), force=True)

    async def served() -> bool:
        try:
            await scene.client.list(AresJob, scene.namespace)
        except NotFound:
            return False
        return True

    await scene.until("AresJobs are served", served)
    yield scene


@pytest.mark.parametrize("kind", APIS)
async def test_poison_harms_nobody_and_is_cured(
    defined: Scene, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    under = APIS[kind]
    async with defined.operator(gangs=False, remote_start=False):
        names = await _stored(defined, under)
        await _create(defined, under, "honest", under.right)
        await _until_running(defined, under, "honest")
        statuses = {name: await _judged(defined, under, name) for name in names}
        wrong = {name: said for name, status in statuses.items() if (said := under.reason(status))}
        cured = [name for name in wrong if "startTime" not in statuses[name]]  # others keep their framework
        assert len(cured) >= 4, "the definition of the kind refuses most, but not all"
        assert all(said.startswith(("spec.", "metadata.")) for said in wrong.values()), wrong
        for name in cured:
            edit = {"op": "replace", "path": "/spec", "value": under.right}
            await defined.client.patch(under.kind, name, [edit], defined.namespace, type=PatchType.JSON)
        await asyncio.gather(*(_until_running(defined, under, name) for name in cured))
    failed = [record for record in caplog.records if record.exc_info and "pass" in record.message]
    assert not failed, failed[0].exc_info


async def _stored(scene: Scene, under: Api) -> list[str]:
    """The names of those that the server lets in."""
    names: list[str] = []
    for number, spec in enumerate(drawn(under.specs, NUMBER)):
        try:
            await _create(scene, under, f"p{number}", spec)
        except ApiError:
            continue
        names.append(f"p{number}")
    return names


async def _create(scene: Scene, under: Api, name: str, spec: Json) -> None:
    await scene.client.create(under.kind, {"metadata": {"name": name}, "spec": spec}, scene.namespace)


async def _status(scene: Scene, under: Api, name: str) -> tuple[int, Json]:
    found = await scene.client.get(under.kind, name, scene.namespace)
    return found.metadata.generation, cast("Json", found.raw.get("status", {}))


async def _judged(scene: Scene, under: Api, name: str) -> Json:
    """The status once the operator is done with the definition, and with what the server says of its pods."""
    status: Json = {}

    async def judged() -> bool:
        nonlocal status
        generation, status = await _status(scene, under, name)
        if status.get("observedGeneration") != generation:
            return False
        made = any(pod.startswith(f"{name}-") for pod in await scene.pods())
        return bool(made or under.reason(status) or status.get("phase") in ("Pending", "Succeeded", "Failed"))

    await scene.until(f"{name} is judged", judged)
    return status


async def _until_running(scene: Scene, under: Api, name: str) -> None:
    async def running() -> bool:
        for pod, found in (await scene.pods()).items():
            if pod.startswith(f"{name}-") and found.status.phase != "Running":
                await scene.report(pod, "Running")
        return (await _status(scene, under, name))[1].get("phase") == "Running"

    await scene.until(f"{name} runs", running)
