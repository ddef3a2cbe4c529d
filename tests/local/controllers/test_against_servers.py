"""Tests for the controllers against a real API server and against the local one."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, NotFound
from argosy.engine.kubeconfig import Connection
from argosy.engine.metrics import Metrics
from argosy.engine.objects import ApiObject
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import ConfigMap, CustomResourceDefinition, Event, ServiceAccount
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.volcano import VolcanoPodGroupCrd
from argosy.local.controllers.api_types import (
    Job,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
)
from argosy.local.controllers.discovery import metadata_type
from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.manager import Timings, run_controllers
from argosy.local.service_types import PVC_PROTECTION_FINALIZER, EndpointSlice, PersistentVolumeClaim, Service
from tests.support import servers
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.simulator import EXIT_CODE, RUN_SECONDS, Simulator
from tests.support.waiting import connections_closed, until

Json = dict[str, object]
F = TypeVar("F", bound=ApiObject)

FAST = Timings(
    node_grace=6.0,  # a busy machine is not a silent node
    max_toleration=0.5,
    quarantine=0.5,
    namespace_retry=0.2,
    job_backoff=JobBackoff(initial=0.1, maximum=1.0),
)


@contextmanager
def _own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An API server without the objects of other tests, which controllers would have to look at, too."""
    if real := request.param == "kubernetes":
        request.getfixturevalue("real_apiserver")  # says so if there is none
    # Not pytest's folder: a Unix socket's path must be short.
    with TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder:
        own = Path(folder) / "own"
        with servers.real_apiserver(own) if real else servers.local_apiserver(own) as server:
            yield server


@pytest.fixture(scope="module", params=API_SERVERS)
def api(request: pytest.FixtureRequest) -> Iterator[Server]:
    with _own_server(request) as server:
        yield server


@pytest.fixture(params=API_SERVERS)
def untouched(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An API server of the test's own."""
    with _own_server(request) as server:
        yield server


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        yield client
    await connections_closed()


@pytest.fixture
async def namespace(client: Client) -> str:
    return await _namespace(client)


async def _namespace(client: Client) -> str:
    """A fresh namespace with the account that pods need; controllers may have made it first."""
    name = f"t{secrets.token_hex(4)}"
    await client.create(Namespace, {"metadata": {"name": name}})
    try:
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, name)
    except AlreadyExists:
        pass
    return name


@asynccontextmanager
async def cluster(client: Client, nodes: int = 2, **allocatable: str) -> AsyncIterator[Simulator]:
    """Simulated nodes, and all controllers at work."""
    names = [f"n{number}-{time.monotonic_ns()}" for number in range(nodes)]
    room = {"nvidia.com/gpu" if name == "gpu" else name: value for name, value in allocatable.items()}
    async with Simulator(client, names, allocatable=room, heartbeat=0.3) as simulator:
        work = asyncio.create_task(run_controllers(client, FAST))
        try:
            yield simulator
            assert not work.done(), work.exception()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await simulator.remove()


async def gone(client: Client, kind: type[ApiObject], name: str, namespace: str | None = None) -> bool:
    try:
        await client.get(kind, name, namespace)
    except NotFound:
        return True
    return False


def pod(name: str, *, labels: Json | None = None, notes: Json | None = None, **spec: object) -> Json:
    container = {"name": "main", "image": "simulated"}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": notes or {}},
        "spec": {"containers": [container | dict(spec.pop("container", {}))], **spec},  # type: ignore[call-overload]
    }


def needs(**requests: str) -> Json:
    names = {"gpu": "nvidia.com/gpu"}
    amounts = {names.get(name, name): value for name, value in requests.items()}
    return {"resources": {"requests": amounts, "limits": amounts}}


async def phase(client: Client, namespace: str, name: str) -> str:
    return (await client.get(Pod, name, namespace)).status.phase


async def test_pods_are_bound_or_get_a_reason_why_not(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=2, cpu="2"):
        await client.create(Pod, pod("small", container=needs(cpu="1")), namespace)
        await client.create(Pod, pod("large", container=needs(cpu="3")), namespace)

        async def running() -> bool:
            return await phase(client, namespace, "small") == "Running"

        async def refused() -> str | None:
            conditions = (await client.get(Pod, "large", namespace)).status.conditions
            messages = (c.message for c in conditions if c.type == "PodScheduled")
            return next((message for message in messages if "Insufficient" in message), None)

        await until(running, "the small pod runs")
        message = await until(refused, "the large pod says why it waits")
        # Nodes of an earlier test may just be leaving.
        assert re.fullmatch(r"0/\d nodes are available: .*[2-9] Insufficient cpu.*\.", message)

        async def is_reported() -> bool:
            events = await client.list(Event, namespace)
            reasons = {(event.involved_object.name, event.reason) for event in events.items}
            return {("small", "Scheduled"), ("large", "FailedScheduling")} <= reasons

        await until(is_reported, "events report it")


async def test_a_gang_is_placed_completely_when_resources_are_free(client: Client, namespace: str) -> None:
    await _define_groups(client)
    async with cluster(client, nodes=2, gpu="2"):
        for gang in ("first", "second"):
            body = {"metadata": {"name": gang}, "spec": {"minMember": 3}}
            await client.create(PodGroup, body, namespace)
        for number in range(3):
            for gang in ("first", "second"):
                notes: Json = {"scheduling.k8s.io/group-name": gang}
                body = pod(f"{gang}-{number}", notes=notes, schedulerName="volcano", container=needs(gpu="1"))
                await client.create(Pod, body, namespace)

        async def phases() -> dict[str, str] | None:
            groups = await client.list(PodGroup, namespace)
            phases_by_name = {group.metadata.name: group.status.phase for group in groups.items}
            return phases_by_name if sorted(phases_by_name.values()) == ["Inqueue", "Running"] else None

        phases_by_name = await until(phases, "one gang runs, the other waits")
        winner = next(name for name, value in phases_by_name.items() if value == "Running")
        loser = next(name for name in phases_by_name if name != winner)
        pods = (await client.list(Pod, namespace)).items
        assert all(bool(pod.spec.node_name) == pod.metadata.name.startswith(winner) for pod in pods)

        async def unschedulable() -> bool:
            group = await client.get(PodGroup, loser, namespace)
            return any(c.type == "Unschedulable" and c.status == "True" for c in group.status.conditions)

        await until(unschedulable, "the waiting gang says why")
        for number in range(3):
            await client.delete(Pod, f"{winner}-{number}", namespace)

        async def second_runs() -> bool:
            return (await client.get(PodGroup, loser, namespace)).status.phase == "Running"

        await until(second_runs, "the other gang runs when the first is gone")


async def test_a_gang_waiting_for_min_resources_is_admitted_when_a_pod_is_deleted(
    client: Client, namespace: str
) -> None:
    await _define_groups(client)
    async with cluster(client, nodes=1, gpu="2"):
        await client.create(Pod, pod("busy", container=needs(gpu="2")), namespace)

        async def busy() -> bool:
            return await phase(client, namespace, "busy") == "Running"

        await until(busy, "the only node is taken")
        spec = {"minMember": 2, "minResources": {"nvidia.com/gpu": "2"}}
        await client.create(PodGroup, {"metadata": {"name": "held"}, "spec": spec}, namespace)

        async def is_held() -> bool:
            return (await client.get(PodGroup, "held", namespace)).status.phase == "Pending"

        await until(is_held, "the gang is held back")
        await client.delete(Pod, "busy", namespace)

        async def is_admitted() -> bool:
            return (await client.get(PodGroup, "held", namespace)).status.phase == "Inqueue"

        await until(is_admitted, "the gang is admitted")


async def test_a_pod_of_higher_priority_preempts_one_of_lower_priority(
    client: Client, namespace: str
) -> None:
    await _define_priority(client, f"{namespace}-high", 1000)
    async with cluster(client, nodes=1, gpu="1") as simulator:
        await client.create(Pod, pod("low", container=needs(gpu="1")), namespace)

        async def running(name: str) -> bool:
            return await phase(client, namespace, name) == "Running"

        await until(lambda: running("low"), "the first pod runs")
        low = await client.get(Pod, "low", namespace)
        observed: list[Pod] = []
        watch = asyncio.create_task(_follow(client, namespace, observed))
        try:
            high = pod("high", container=needs(gpu="1"), priorityClassName=f"{namespace}-high")
            preemptor = await client.create(Pod, high, namespace)
            await until(lambda: running("high"), "the second has its room")
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        assert await gone(client, Pod, "low", namespace)
        lost = [event for event in observed if event.metadata.uid == low.metadata.uid]
        reasons = {
            c.reason for event in lost for c in event.status.conditions if c.type == "DisruptionTarget"
        }
        assert reasons == {"PreemptionByScheduler"}
        waited = [
            event.status.nominated_node_name
            for event in observed
            if event.metadata.uid == preemptor.metadata.uid
        ]
        only = next(iter(simulator.nodes))
        assert only in waited
        assert (await client.get(Pod, "high", namespace)).status.nominated_node_name == ""

        async def is_reported() -> bool:
            message = f"Preempted by pod {preemptor.metadata.uid} on node {only}"
            events = await client.list(Event, namespace)
            return any((event.reason, event.message) == ("Preempted", message) for event in events.items)

        await until(is_reported, "an event reports it")


async def _follow(client: Client, namespace: str, observed: list[Pod]) -> None:
    cache = Cache(client, Pod, namespace=namespace)
    cache.subscribe(lambda change: observed.append(change.new) if change.new is not None else None)
    await cache.run()


async def _define_priority(client: Client, name: str, value: int) -> None:
    await client.create(PriorityClass, {"metadata": {"name": name}, "value": value})


def job(name: str, **spec: object) -> Json:
    """A Job; `run` and `code` say how long its pods run and how they exit."""
    notes = {RUN_SECONDS: spec.pop("run", "0.1"), EXIT_CODE: spec.pop("code", "0")}
    template = {
        "metadata": {"annotations": notes},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "simulated"}]},
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def _ended(client: Client, namespace: str, name: str) -> Job:
    async def ended() -> Job | None:
        job = await client.get(Job, name, namespace)
        over = any(c.type in ("Complete", "Failed") and c.status == "True" for c in job.status.conditions)
        return job if over else None

    return await until(ended, f"job {name} ends")


async def test_a_job_completes_with_exact_counts(client: Client, namespace: str) -> None:
    async with cluster(client):
        await client.create(Job, job("plain", completions=5, parallelism=2), namespace)
        await client.create(
            Job, job("indexed", completions=3, parallelism=3, completionMode="Indexed"), namespace
        )
        plain = await _ended(client, namespace, "plain")
        assert [c.type for c in plain.status.conditions] == ["SuccessCriteriaMet", "Complete"]
        assert (plain.status.succeeded, plain.status.failed, plain.status.active) == (5, 0, 0)
        assert plain.status.completion_time is not None
        indexed = await _ended(client, namespace, "indexed")
        assert (indexed.status.succeeded, indexed.status.completed_indexes) == (3, "0-2")
        pods = [pod for pod in (await client.list(Pod, namespace)).items if pod.spec.hostname]
        assert sorted(pod.spec.hostname for pod in pods) == ["indexed-0", "indexed-1", "indexed-2"]
        assert all(not pod.metadata.finalizers for pod in pods)


async def test_a_job_fails_when_its_pods_do(client: Client, namespace: str) -> None:
    async with cluster(client):
        await client.create(Job, job("failing", code="3", backoffLimit=1), namespace)
        failing = await _ended(client, namespace, "failing")
        assert [(c.type, c.reason) for c in failing.status.conditions] == [
            ("FailureTarget", "BackoffLimitExceeded"),
            ("Failed", "BackoffLimitExceeded"),
        ]
        assert (failing.status.failed, failing.status.succeeded) == (2, 0)
        await client.create(Job, job("slow", run="100", activeDeadlineSeconds=1), namespace)
        slow = await _ended(client, namespace, "slow")
        assert slow.status.conditions[-1].reason == "DeadlineExceeded"


async def test_a_job_is_suspended_resumed_and_expires(client: Client, namespace: str) -> None:
    async with cluster(client):
        body = job("nap", run="0.1", suspend=True, ttlSecondsAfterFinished=0)
        await client.create(Job, body, namespace)

        async def suspended() -> bool:
            suspended_job = await client.get(Job, "nap", namespace)
            return any(c.type == "Suspended" and c.status == "True" for c in suspended_job.status.conditions)

        await until(suspended, "the job says that it is suspended")
        assert not (await client.list(Pod, namespace)).items
        await client.patch(Job, "nap", {"spec": {"suspend": False}}, namespace)

        async def expired() -> bool:
            left = (await client.list(Pod, namespace)).items
            return not left and await gone(client, Job, "nap", namespace)

        await until(expired, "the job ran, and it and its pods are gone")


async def test_a_service_has_the_addresses_of_its_ready_pods(client: Client, namespace: str) -> None:
    async with cluster(client):
        spec = {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
        await client.create(
            Service, {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec}, namespace
        )

        async def slices(count: int) -> EndpointSlice | None:
            items = (await client.list(EndpointSlice, namespace)).items
            fits = len(items) == 1 and len(items[0].endpoints or ()) == count
            return items[0] if fits else None

        empty = await until(lambda: slices(0), "an empty slice")
        assert empty.metadata.labels["a"] == "b"
        for number in range(2):
            body = pod(f"web-{number}", labels={"app": "web"}, hostname=f"web-{number}", subdomain="web")
            await client.create(Pod, body, namespace)
        full = await until(lambda: slices(2), "both pods are behind the service")
        assert full.ports is not None
        assert [port.port for port in full.ports] == [8080]
        assert full.metadata.labels["service.kubernetes.io/headless"] == ""
        assert {endpoint.hostname for endpoint in full.endpoints or ()} == {"web-0", "web-1"}
        assert all(endpoint.conditions.ready for endpoint in full.endpoints or ())
        await client.delete(Pod, "web-0", namespace)
        await until(lambda: slices(1), "one pod is gone")
        await client.delete(Service, "web", namespace)

        async def no_slices() -> bool:
            return not (await client.list(EndpointSlice, namespace)).items

        await until(no_slices, "the slice goes with its service")


async def test_a_budget_uses_the_scale_of_a_custom_resource(client: Client, namespace: str) -> None:
    group = f"{namespace}.example.com"
    gauge = Resource(group, "v1", "Gauge", "gauges")
    await client.create(CustomResourceDefinition, _scaled_definition(group))
    async with cluster(client):

        async def create_gauge() -> ApiObject | None:
            try:
                return await client.create(
                    metadata_type(gauge), {"metadata": {"name": "g"}, "spec": {"n": 4}}, namespace
                )
            except NotFound:  # the definition is not served yet
                return None

        owner = await until(create_gauge, "the custom resource is there")
        reference = {
            "apiVersion": f"{group}/v1",
            "kind": "Gauge",
            "name": "g",
            "uid": owner.metadata.uid,
            "controller": True,
        }
        for number in range(2):
            body = pod(f"p{number}", labels={"app": "web"})
            body["metadata"] = {**_metadata(body), "ownerReferences": [reference]}
            await client.create(Pod, body, namespace)
        spec = {"maxUnavailable": 3, "selector": {"matchLabels": {"app": "web"}}}
        await client.create(PodDisruptionBudget, {"metadata": {"name": "b"}, "spec": spec}, namespace)

        async def counted() -> bool:
            status = (await client.get(PodDisruptionBudget, "b", namespace)).status
            return (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (4, 2, 1)

        await until(counted, "one of two pods may go, of four that are wanted")


def _metadata(body: Json) -> Json:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return metadata


def _scaled_definition(group: str) -> Json:
    counted = {"type": "object", "properties": {"n": {"type": "integer"}}}
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": counted}}},
    }
    names = {"plural": "gauges", "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"gauges.{group}"}, "spec": spec}


def owned(name: str, owner: ConfigMap, *, block: bool = False) -> Json:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "blockOwnerDeletion": block,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


async def test_a_claim_is_bound_and_kept_while_a_pod_uses_it(client: Client, namespace: str) -> None:
    def claim(name: str, **spec: object) -> Json:
        storage = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        return {"metadata": {"name": name}, "spec": {**storage, **spec}}

    async with cluster(client):
        await client.create(PersistentVolumeClaim, claim("data"), namespace)
        await client.create(PersistentVolumeClaim, claim("disk", volumeMode="Block"), namespace)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        await client.create(Pod, pod("user", volumes=volumes), namespace)

        async def bound() -> bool:
            claim = await client.get(PersistentVolumeClaim, "data", namespace)
            return claim.status.phase == "Bound" and PVC_PROTECTION_FINALIZER in claim.metadata.finalizers

        async def placed() -> bool:
            return bool((await client.get(Pod, "user", namespace)).spec.node_name)

        async def is_reported() -> bool:
            events = (await client.list(Event, namespace)).items
            return ("disk", "ProvisioningFailed") in {(e.involved_object.name, e.reason) for e in events}

        await until(bound, "the claim is bound")
        await until(placed, "the pod has a node")
        await until(is_reported, "an event reports why a claim for a block device waits")
        await client.delete(PersistentVolumeClaim, "data", namespace)
        await client.create(PersistentVolumeClaim, claim("later"), namespace)

        async def later() -> bool:
            return (await client.get(PersistentVolumeClaim, "later", namespace)).status.phase == "Bound"

        await until(later, "what was created after the deletion is bound")
        kept = await client.get(PersistentVolumeClaim, "data", namespace)
        assert kept.metadata.deletion_timestamp is not None
        await client.delete(Pod, "user", namespace, grace_seconds=0)
        await until(lambda: gone(client, PersistentVolumeClaim, "data", namespace), "the claim goes")


async def test_dependents_of_a_deleted_owner_are_deleted(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=0):
        owner = await client.create(ConfigMap, {"metadata": {"name": "owner"}}, namespace)
        middle = await client.create(ConfigMap, owned("middle", owner), namespace)
        await client.create(ConfigMap, owned("leaf", middle), namespace)
        await client.delete(ConfigMap, "owner", namespace)
        await until(lambda: gone(client, ConfigMap, "leaf", namespace), "grandchildren go too")
        ghost = ConfigMap(metadata=ObjectMeta(name="ghost", uid="no-such-uid"))
        await client.create(ConfigMap, owned("haunted", ghost), namespace)
        await until(lambda: gone(client, ConfigMap, "haunted", namespace), "its owner never was")


async def test_foreground_deletion_waits_for_dependents(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=0):
        owner = await client.create(ConfigMap, {"metadata": {"name": "owner"}}, namespace)
        body = owned("held", owner, block=True)
        body["metadata"]["finalizers"] = ["example.com/hold"]  # type: ignore[index]
        await client.create(ConfigMap, body, namespace)
        await client.delete(ConfigMap, "owner", namespace, propagation="Foreground")

        async def deleting() -> bool:
            held = await client.get(ConfigMap, "held", namespace)
            return held.metadata.deletion_timestamp is not None

        await until(deleting, "the dependent is deleted first")
        assert not await gone(client, ConfigMap, "owner", namespace)
        await client.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace)
        await until(lambda: gone(client, ConfigMap, "owner", namespace), "then the owner")


async def test_orphaned_dependents_are_kept(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=0):
        owner = await client.create(ConfigMap, {"metadata": {"name": "owner"}}, namespace)
        await client.create(ConfigMap, owned("orphan", owner), namespace)
        await client.delete(ConfigMap, "owner", namespace, propagation="Orphan")
        await until(lambda: gone(client, ConfigMap, "owner", namespace), "the owner goes")
        orphan = await client.get(ConfigMap, "orphan", namespace)
        assert orphan.metadata.owner_references == []


async def test_dependents_of_a_custom_resource_are_deleted(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=0):
        await _define_groups(client)
        body = {"metadata": {"name": "owner"}, "spec": {"minMember": 1}}
        group = await until(lambda: _try_create(client, PodGroup, body, namespace), "the kind is served")
        reference = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "name": "owner",
            "uid": group.metadata.uid,
        }
        await client.create(
            ConfigMap, {"metadata": {"name": "child", "ownerReferences": [reference]}}, namespace
        )
        await client.delete(PodGroup, "owner", namespace)
        await until(lambda: gone(client, ConfigMap, "child", namespace), "the child follows")


async def test_a_namespace_is_deleted_with_its_content(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=1):
        await client.create(Pod, pod("a"), namespace)
        await client.create(ConfigMap, {"metadata": {"name": "a"}}, namespace)

        async def running() -> bool:
            return await phase(client, namespace, "a") == "Running"

        await until(running, "the pod runs")
        await client.delete(Namespace, namespace)
        await until(lambda: gone(client, Namespace, namespace), "the namespace is gone")


async def test_every_namespace_has_a_service_account_and_the_ca(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=0):
        name = f"{namespace}-more"
        await client.create(Namespace, {"metadata": {"name": name}})

        async def complete() -> bool:
            if await gone(client, ServiceAccount, "default", name):
                return False
            return not await gone(client, ConfigMap, "kube-root-ca.crt", name)

        await until(complete, "account and authority are there")
        bundle = await client.get(ConfigMap, "kube-root-ca.crt", name)
        assert "BEGIN CERTIFICATE" in bundle.data["ca.crt"]
        await client.delete(ServiceAccount, "default", name)
        await until(complete, "a deleted account comes back")


async def test_a_silent_node_loses_its_pods_and_recovers(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=2) as simulator:
        lost = next(iter(simulator.nodes))
        pinned: Json = {"kubernetes.io/hostname": lost}
        away = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ]
        await client.create(Pod, pod("guest", nodeSelector=pinned, tolerations=away), namespace)

        async def running() -> bool:
            return await phase(client, namespace, "guest") == "Running"

        await until(running, "the pod runs")
        simulator.silence(lost)

        async def unreachable() -> bool:
            node = await client.get(Node, lost)
            taints = {(taint.key, taint.effect) for taint in node.spec.taints}
            unknown = any(c.type == "Ready" and c.status == "Unknown" for c in node.status.conditions)
            return unknown and ("node.kubernetes.io/unreachable", "NoExecute") in taints

        async def evicted() -> bool:
            guest = await client.get(Pod, "guest", namespace)
            return guest.metadata.deletion_timestamp is not None

        await until(unreachable, "the node is marked and tainted")
        await until(evicted, "its pod is evicted")
        guest = await client.get(Pod, "guest", namespace)
        assert any(c.type == "DisruptionTarget" for c in guest.status.conditions)
        assert any(c.type == "Ready" and c.status == "False" for c in guest.status.conditions)
        await simulator.revive(lost)

        async def clean() -> bool:
            return not (await client.get(Node, lost)).spec.taints

        await until(clean, "the node is back without taints")
        await until(lambda: gone(client, Pod, "guest", namespace), "its evicted pod ends there")


async def test_nodes_have_their_grace_period_after_the_controllers_were_stopped(client: Client) -> None:
    async with cluster(client, nodes=1) as simulator:
        node = next(iter(simulator.nodes))

        async def ready() -> bool:
            conditions = (await client.get(Node, node)).status.conditions
            return any(c.type == "Ready" and c.status == "True" for c in conditions)

        await until(ready, "the node is ready")
        simulator.silence(node)
        await asyncio.sleep(1)  # until its last word has been heard
        time.sleep(FAST.node_grace + 1)  # noqa: ASYNC251 - stops controllers and nodes, as SIGSTOP does
        await asyncio.sleep(1)  # the time that the node takes until it is heard again
        assert await ready()
        await simulator.revive(node)


async def test_the_pods_of_a_deleted_node_are_removed(client: Client, namespace: str) -> None:
    async with cluster(client, nodes=1) as simulator:
        await client.create(Pod, pod("guest"), namespace)

        async def running() -> bool:
            return await phase(client, namespace, "guest") == "Running"

        await until(running, "the pod runs")
        only = next(iter(simulator.nodes))
        simulator.silence(only)
        await client.delete(Node, only)
        await until(lambda: gone(client, Pod, "guest", namespace), "its pod is collected")


async def test_a_restart_without_changes_writes_nothing(untouched: Server) -> None:
    async with Client(Connection.from_kubeconfig(untouched.kubeconfig)) as client:
        await _look_twice(client, await _namespace(client))
    await connections_closed()


async def _look_twice(client: Client, namespace: str) -> None:
    await _define_groups(client)
    async with cluster(client, nodes=1, cpu="1"):
        await client.create(Job, job("done", completions=2), namespace)
        spec = {"selector": {"job-name": "done"}, "ports": [{"port": 80}]}
        await client.create(Service, {"metadata": {"name": "web"}, "spec": spec}, namespace)
        await client.create(PodGroup, {"metadata": {"name": "big"}, "spec": {"minMember": 2}}, namespace)
        notes: Json = {"scheduling.k8s.io/group-name": "big"}
        await client.create(Pod, pod("waiting", notes=notes, schedulerName="volcano"), namespace)
        await _ended(client, namespace, "done")

        async def settled() -> bool:
            group = await client.get(PodGroup, "big", namespace)
            waiting = await client.get(Pod, "waiting", namespace)
            slices = (await client.list(EndpointSlice, namespace)).items
            return bool(group.status.conditions and waiting.status.conditions and slices)

        await until(settled, "everything is said")
    async with Client(client.connection, metrics=Metrics(CollectorRegistry())) as second:
        work = asyncio.create_task(run_controllers(second, Timings()))
        # Two things to do, made last and so done last: what was there before has been looked at by then.
        ghost = ConfigMap(metadata=ObjectMeta(name="ghost", uid="no-such-uid"))
        await client.create(ConfigMap, owned("haunted", ghost), namespace)
        await client.create(Service, {"metadata": {"name": "last"}, "spec": spec}, namespace)
        await until(lambda: gone(client, ConfigMap, "haunted", namespace), "the collector is through")

        async def sliced() -> bool:
            return any(
                piece.metadata.labels["kubernetes.io/service-name"] == "last"
                for piece in (await client.list(EndpointSlice, namespace)).items
            )

        await until(sliced, "the services are through")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

        def done(verb: str, code: str) -> float | None:
            return second.metrics.registry.get_sample_value(
                "argosy_api_requests_total", {"method": verb, "code": code}
            )

        writes = (("POST", "201"), ("PUT", "200"), ("PATCH", "200"), ("DELETE", "200"))
        assert [done(*write) for write in writes] == [1.0, None, None, 1.0]


async def _define_groups(client: Client) -> None:
    try:
        await client.create(CustomResourceDefinition, crd_for(VolcanoPodGroupCrd))
    except AlreadyExists:
        return

    async def established() -> bool:
        try:
            await client.list(PodGroup, "default")
        except NotFound:
            return False
        return True

    await until(established, "PodGroups are served")


async def _try_create(client: Client, kind: type[F], body: Json, namespace: str) -> F | None:
    try:
        return await client.create(kind, body, namespace)
    except NotFound:
        return None
