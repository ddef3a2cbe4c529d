"""Tests for the settings of TrainingJobs in a running operator, and for features that are off."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from argosy.dialects.et.settings import EtSettings
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import Pod, SecretMetadata
from argosy.kinds.trainingjob import JobCondition, TrainingJob
from argosy.operator.apis.base import with_setting
from argosy.operator.apis.et import ET, OPTIONS, summarize
from tests.support.operator_harness import Scene, until_served
from tests.support.trainingjobs import job

KIND = dynamic_kind(TrainingJob.resource)
OFF = "are disabled in this installation; an administrator can enable them with the chart value features."


async def submit(scene: Scene, mode: str) -> None:
    await until_served(scene.client, TrainingJob, scene.namespace)
    await scene.client.create(KIND, job("j", {"launcherAttachMode": mode}), scene.namespace)


def condition(scene: Scene, kind: str) -> Callable[[], Awaitable[JobCondition | None]]:
    async def find() -> JobCondition | None:
        conditions = (await scene.client.get(TrainingJob, "j", scene.namespace)).status.conditions
        return next((item for item in conditions if item.type == kind), None)

    return find


async def until_rejected(scene: Scene, kind: str) -> JobCondition:
    """Wait until this step of the start is held up; return its condition."""
    find = condition(scene, kind)

    async def rejected() -> bool:
        found = await find()
        return found is not None and found.reason == "PodCreateFailed"

    await scene.until(f"{kind} is False", rejected)
    found = await find()
    assert found is not None
    assert found.status == "False"
    return found


async def test_job_in_ssh_mode_waits_while_ssh_keys_are_off(scene: Scene) -> None:
    await submit(scene, "ssh")
    async with scene.operator(apis=(ET,), ssh_keys=False):
        found = await until_rejected(scene, "WorkersCreated")
        assert found.message == f"ssh keys {OFF}sshKeys=true"
        assert not await scene.pods()
        stored = await scene.client.get(TrainingJob, "j", scene.namespace)
        assert (stored.status.phase, summarize(stored).message) == ("Created", found.message)
    async with scene.operator(apis=(ET,)):
        await scene.until_pods("j-worker-0", "j-worker-1")


async def test_launcher_waits_while_remote_exec_is_off(scene: Scene) -> None:
    await submit(scene, "kubexec")
    async with scene.operator(apis=(ET,), remote_exec=False):
        await scene.until_pods("j-worker-0", "j-worker-1")
        await scene.report_all("Running")
        found = await until_rejected(scene, "LauncherCreated")
        assert found.message == f"launchers that start processes in other pods {OFF}remoteExec=true"
        assert set(await scene.pods()) == {"j-worker-0", "j-worker-1"}


async def test_case_8_without_create_ssh_secret_no_secret_is_created(scene: Scene) -> None:
    await submit(scene, "ssh")
    apis = (replace(ET, settings=EtSettings(create_ssh_secret=False)),)
    async with scene.operator(apis=apis, ssh_keys=False):
        await scene.until_pods("j-worker-0", "j-worker-1")
    with pytest.raises(NotFound):
        await scene.client.get(SecretMetadata, "j", scene.namespace)
    assert len((await scene.client.list(Pod, scene.namespace)).items) == 2


CHANGED = {
    "create_ssh_secret": False,
    "init_container_image": "busybox",
    "below_min_timeout": 1.0,
    "worker_budget.limit": 3,
}


def test_every_setting_has_an_option() -> None:
    settings = EtSettings()
    assert {option.field for option in OPTIONS} == set(CHANGED)
    assert {option.field.partition(".")[0] for option in OPTIONS} == set(EtSettings.__struct_fields__)
    for field, value in CHANGED.items():
        assert with_setting(settings, field, value) != settings
