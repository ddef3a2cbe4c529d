"""Reviews of pods by themselves: hostile and odd ones, faults of the API server, and many backups."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from argosy.dialects.migration.job_targets import BY_TARGET, target_keys
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup
from argosy.operator.apis import spot_pod_webhook
from argosy.operator.apis.spot import SPOT
from argosy.operator.apis.spot_pod_webhook import PodMetrics, PodReviewer
from argosy.operator.webhooks import AdmissionRequest
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import eventually

CONTAINER: Json = {"name": "main", "image": "train:v1"}
UID = "uid-of-the-job"
"""Stands for the uid that the API server has given to the Job."""
TEMPLATE: Json = {"spec": {"containers": [CONTAINER]}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": UID, "controller": True}
COUNTER = "argosy_spot_pod_reviews_total"


def job() -> Json:
    metadata = {"name": "train", "namespace": "research", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"parallelism": 1, "template": TEMPLATE}}


def backup(name: str = "backup", namespace: str = "research", at: str = "2026-01-02T00:00:00Z") -> Json:
    registry = {"url": "registry.example", "repository": "team/train", "secretRef": {"name": "login"}}
    image = {"containerName": "main", "imageName": f"team/train:{name}", "pushed": True}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedule": "immediately",
            "podRef": {"name": "train-x7k2p"},
            "resourceRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"},
            "registry": registry,
        },
        "status": {
            "phase": "Completed",
            "completionTime": at,
            "lastCheckpointTime": at,
            "builtImages": [image],
            "checkpointedPodTemplate": {"metadata": {"labels": {"controller-uid": UID}}, **TEMPLATE},
        },
    }


def pod(**metadata: object) -> Json:
    return {"metadata": {"generateName": "train-", "ownerReferences": [JOB], **metadata}, **TEMPLATE}


@dataclass
class Stage:
    """A reviewer, and the API server that it reads."""

    api: FakeServer
    reviewer: PodReviewer
    backups: Cache[CheckpointBackup]
    registry: CollectorRegistry
    uid: str
    asked: int = field(default=0)

    async def add(self, *backups: Json) -> None:
        for item in backups:
            await self.api.put("checkpointbackups", msgspec.json.decode(self._encode(item)))
        await eventually(lambda: len(self.backups) == len(self.api.objects("checkpointbackups")))
        self.asked = len(self.api.requests)

    async def review(self, obj: object, namespace: str = "research") -> Json:
        """Return the response to a review of an object, or of its JSON."""
        raw = obj if isinstance(obj, bytes) else self._encode(obj)
        return await self.reviewer.review(AdmissionRequest("1", msgspec.Raw(raw), namespace=namespace))

    def _encode(self, obj: object) -> bytes:
        return msgspec.json.encode(obj).replace(UID.encode(), self.uid.encode())

    async def image(self, obj: object, namespace: str = "research") -> str:
        """Return the image that a pod gets from its review; empty if none."""
        response = await self.review(obj, namespace)
        assert response["allowed"] is True
        if "patch" not in response:
            return ""
        patch = msgspec.json.decode(base64.b64decode(str(response["patch"])), type=list[Json])
        return next(str(each["value"]) for each in patch if str(each["path"]).endswith("/image"))

    def requests(self) -> list[str]:
        """Return what the reviewer has requested since the last backup was added."""
        return [request.path.rpartition("/")[2] for request in self.api.requests[self.asked :]]

    def counted(self, result: str) -> float:
        return self.registry.get_sample_value(COUNTER, {"result": result}) or 0.0


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with FakeServer() as api, Client(api.connection()) as client:
        backups = Cache(client, CheckpointBackup, indexes={BY_TARGET: target_keys})
        running = asyncio.create_task(backups.run())
        await backups.wait_synced()
        registry = CollectorRegistry()
        stored = cast("dict[str, dict[str, str]]", await api.put("jobs", job()))
        reviewer = PodReviewer(client, backups, PodMetrics(registry))
        yield Stage(api, reviewer, backups, registry, stored["metadata"]["uid"])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_pod_with_a_good_backup_gets_its_image(stage: Stage) -> None:
    await stage.add(backup())
    assert await stage.image(pod()) == "registry.example/team/train:backup"
    assert stage.requests() == ["train", "login"]
    assert stage.counted("restored") == 1


OTHERS: dict[str, Json] = {
    "pod of a Job without backups": pod(ownerReferences=[{**JOB, "name": "other"}]),
    "pod of a ReplicaSet with the name of the Job": pod(
        ownerReferences=[{**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}]
    ),
    "pod that the Job does not control": pod(ownerReferences=[{**JOB, "controller": False}]),
    "pod without owners": pod(ownerReferences=[]),
    "pod whose template wants to start from the beginning": pod(
        annotations={"argosy.dev/restore-pods": "false"}
    ),
    "pod that is restored already": pod(annotations={"argosy.dev/restored-containers": "main"}),
    "pod of a SpotInstanceJob": pod(labels={"training.dcnlab.com/spot-instance-job": "sij"}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
async def test_nothing_is_read_for(other: Json, stage: Stage) -> None:
    await stage.add(backup())
    assert await stage.review(other) == {"allowed": True}
    assert stage.requests() == []


async def test_backup_of_another_namespace_changes_no_pod(stage: Stage) -> None:
    elsewhere, reaching = backup(namespace="other"), backup("reaching", "other")
    cast("dict[str, Json]", reaching["spec"])["resourceRef"]["namespace"] = "research"
    await stage.add(elsewhere, reaching)
    assert await stage.review(pod()) == {"allowed": True}
    assert stage.requests() == []


async def test_nothing_is_said_about_a_job_whose_uid_the_pod_does_not_know(stage: Stage) -> None:
    bad = backup()
    cast("Json", bad["status"])["phase"] = "Failed"
    await stage.add(bad)
    assert "warnings" in await stage.review(pod())
    guessed = pod(ownerReferences=[{**JOB, "uid": "guessed"}])
    assert await stage.review(guessed) == {"allowed": True}
    await stage.add(backup())
    assert await stage.review(guessed) == {"allowed": True}
    await stage.api.remove("jobs", "research", "train")
    assert await stage.review(pod()) == {"allowed": True}


async def test_forged_images_without_a_phase_do_not_count(stage: Stage) -> None:
    forged = backup()
    del cast("Json", forged["status"])["phase"]
    await stage.add(forged)
    response = await stage.review(pod())
    assert response == {
        "allowed": True,
        "warnings": [
            "the pod starts from the beginning: CheckpointBackup backup: phase 'Pending', "
            "and no checkpoint before it"
        ],
    }
    assert stage.counted("not-restored") == 1


ODD: dict[str, object] = {
    "pod that is null": None,
    "pod that is a list": [],
    "metadata that is no object": {"metadata": 7},
    "metadata with other types": {"metadata": {"ownerReferences": 7}},
    "no JSON": b"{",
    "very deep": b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_odd_pod_is_allowed(odd: object, stage: Stage) -> None:
    await stage.add(backup())
    assert await stage.review(odd) == {"allowed": True}
    assert stage.counted("failed") == 1


async def test_stranger_cannot_fill_the_log_with_one_review(stage: Stage) -> None:
    with captured_lines() as lines:
        assert await stage.review(b"{", namespace="n" * 1_000_000) == {"allowed": True}
    assert sum(len(str(line)) for line in lines) < 2_000


ODD_CONTAINERS: dict[str, object] = {
    "no containers": None,
    "containers that are no list": "main",
    "container that is no object": ["main"],
    "container without an image": [{"name": "main"}],
}


@pytest.mark.parametrize("containers", ODD_CONTAINERS.values(), ids=ODD_CONTAINERS.keys())
async def test_pod_with_odd_containers_is_left_to_the_api_server(containers: object, stage: Stage) -> None:
    await stage.add(backup())
    response = await stage.review({**pod(), "spec": {"containers": containers}})
    assert response["allowed"] is True
    assert "patch" not in response


@pytest.mark.parametrize("status", [403, 409, 500])
async def test_pod_is_allowed_if_its_job_cannot_be_read(
    status: int, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spot_pod_webhook, "READ_SECONDS", 0.3)  # errors that may pass are retried
    await stage.add(backup())
    stage.api.faults.append(Fault(status, times=100, match=lambda seen: seen.path.endswith("/jobs/train")))
    with captured_lines() as lines:
        assert await stage.review(pod()) == {"allowed": True}
    assert [line["namespace"] for line in lines if "not reviewed" in str(line["event"])] == ["research"]
    assert stage.counted("failed") == 1


async def test_pod_is_allowed_if_the_api_server_does_not_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_forever(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(spot_pod_webhook, "READ_SECONDS", 0.1)
    monkeypatch.setattr(stage.reviewer._client, "get", wait_forever)
    await stage.add(backup())
    async with asyncio.timeout(20):
        assert await stage.review(pod()) == {"allowed": True}
    assert stage.counted("failed") == 1


@pytest.mark.parametrize("status", [403, 404])
async def test_pod_is_restored_without_a_pull_secret_that_cannot_be_read(status: int, stage: Stage) -> None:
    await stage.add(backup())
    stage.api.faults.append(Fault(status, times=100, match=lambda seen: seen.path.endswith("/login")))
    response = await stage.review(pod())
    assert b"imagePullSecrets" not in base64.b64decode(str(response["patch"]))


SECRET_TYPES = {
    "Secret of docker: pods can pull with it": ("kubernetes.io/dockerconfigjson", True),
    "Secret with username and password: they cannot": ("Opaque", False),
}


@pytest.mark.parametrize(("type", "want"), SECRET_TYPES.values(), ids=SECRET_TYPES.keys())
async def test_secret_of_the_registry_is_added_to_the_pod(type: str, want: bool, stage: Stage) -> None:
    await stage.api.put("secrets", {"metadata": {"name": "login", "namespace": "research"}, "type": type})
    await stage.add(backup())
    response = await stage.review(pod())
    assert (b'[{"name":"login"}]' in base64.b64decode(str(response["patch"]))) is want


async def test_newest_of_a_thousand_backups_is_chosen_with_two_requests(stage: Stage) -> None:
    day = [
        f"2026-01-{number % 28 + 1:02}T{number // 28 % 24:02}:{number % 60:02}:00Z" for number in range(999)
    ]
    await stage.add(
        *(backup(f"b-{number}", at=at) for number, at in enumerate(day)),
        backup("newest", at="2026-02-01T00:00:00Z"),
    )
    assert await stage.image(pod()) == "registry.example/team/train:newest"
    assert stage.requests() == ["train", "login"]


async def test_warning_names_a_few_reasons_only(stage: Stage) -> None:
    bad = [backup(f"b-{number}") for number in range(100)]
    for item in bad:
        cast("Json", item["status"])["phase"] = "Failed"
    await stage.add(*bad)
    [warning] = cast("list[str]", (await stage.review(pod()))["warnings"])
    assert warning.count("CheckpointBackup") == 3


def test_every_announced_webhook_lets_training_start_without_it() -> None:
    [webhook] = SPOT.webhooks
    assert (webhook.failure_policy, webhook.operations, webhook.label) == ("Ignore", ("CREATE",), "job-name")
    assert webhook.timeout_seconds is not None
    assert webhook.timeout_seconds > spot_pod_webhook.READ_SECONDS
