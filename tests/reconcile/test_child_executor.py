"""Tests for writing children, against a real kube-apiserver and against the local one."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from argosy.engine.client import Client
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import Invalid, NotFound
from argosy.engine.kubeconfig import Connection
from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap, Job, Secret, SecretMetadata, Service
from argosy.kinds.meta import Json
from argosy.plan.actions import ActionStatus, Apply, AwaitedAction, Check, Patch, Remove
from argosy.plan.children import Child, KubernetesObject, Owner, child_body, version_of
from argosy.reconcile.child_executor import ChildExecutor, WrittenChildren
from tests.support.servers import Server

KEY = Child(SecretMetadata, "key", {"immutable": True}, generator="random")


def settings(*, merge: bool = False, **data: str) -> Child:
    return Child(ConfigMap, "settings", {"data": data}, merge=merge)


class CountingClient(Client):
    """Counts its requests."""

    requests = 0

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.requests += 1
        return await super().request(method, path, **options)


@dataclass
class Harness:
    """An owner in a fresh namespace, with its own executor."""

    client: CountingClient
    owner: Owner
    written: WrittenChildren = field(default_factory=WrittenChildren)
    returned: list[KubernetesObject] = field(default_factory=list)
    generated: int = 0
    """How often random content was made."""

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    async def execute(self, action: AwaitedAction) -> ActionStatus:
        executor = ChildExecutor(
            self.client, self.owner, self.written, self.returned.append, {"random": self._random_content}
        )
        return await executor.execute(action)

    def _random_content(self) -> Json:
        self.generated += 1
        return {"stringData": {"key": secrets.token_hex(8)}}

    async def created(self, child: Child) -> str:
        """Create the child; return its uid."""
        assert await self.execute(Apply(child)) is ActionStatus.DONE
        return self.returned[-1].metadata.uid

    async def config_map(self, name: str = "settings") -> ConfigMap:
        return await self.client.get(ConfigMap, name, self.namespace)

    async def create_foreign(self, **metadata: object) -> ConfigMap:
        body = {"metadata": {"name": "settings", **metadata}, "data": {"theirs": "1"}}
        return await self.client.create(ConfigMap, body, self.namespace)


@pytest.fixture
async def harness(api: Server, namespace: str) -> AsyncIterator[Harness]:
    async with CountingClient(Connection.from_kubeconfig(api.kubeconfig)) as client:
        owner = await client.create(ConfigMap, {"metadata": {"name": "owner"}}, namespace)
        yield Harness(client, Owner.from_object(owner))


async def test_a_child_is_created_with_its_owner_and_labels(harness: Harness) -> None:
    uid = await harness.created(settings(a="1"))
    created = await harness.config_map()
    assert (created.metadata.uid, created.data) == (uid, {"a": "1"})
    assert harness.owner.owns(created.metadata)
    assert created.metadata.labels == {labels.MANAGED_BY: labels.MANAGER, labels.UID: harness.owner.uid}
    assert harness.written.versions == {uid: version_of(created.metadata)}


async def test_an_apply_removes_what_the_body_omits_and_keeps_what_others_wrote(harness: Harness) -> None:
    uid = await harness.created(settings(a="1", b="2"))
    async with Client(harness.client.connection, field_manager="somebody") as somebody:
        patch = {"metadata": {"annotations": {"note": "theirs"}}, "data": {"c": "theirs"}}
        await somebody.patch(ConfigMap, "settings", patch, harness.namespace)
    assert await harness.execute(Apply(settings(a="3"), uid)) is ActionStatus.DONE
    applied = await harness.config_map()
    assert applied.data == {"a": "3", "c": "theirs"}
    assert applied.metadata.annotations["note"] == "theirs"
    assert await harness.execute(Apply(settings(d="4"), uid)) is ActionStatus.DONE
    assert (await harness.config_map()).data == {"c": "theirs", "d": "4"}


async def test_a_field_that_others_changed_is_put_back(harness: Harness) -> None:
    uid = await harness.created(settings(a="1"))
    await harness.client.patch(ConfigMap, "settings", {"data": {"a": "changed"}}, harness.namespace)
    assert await harness.execute(Apply(settings(a="1"), uid)) is ActionStatus.DONE
    assert (await harness.config_map()).data == {"a": "1"}


async def test_applying_the_same_body_again_changes_nothing(harness: Harness) -> None:
    uid = await harness.created(settings(a="1"))
    await harness.execute(Apply(settings(a="2"), uid))
    before = (await harness.config_map()).metadata.resource_version
    await harness.execute(Apply(settings(a="2"), uid))
    assert (await harness.config_map()).metadata.resource_version == before


async def test_an_operator_that_was_restarted_removes_what_it_applied_before(harness: Harness) -> None:
    uid = await harness.created(settings(a="1"))
    await harness.execute(Apply(settings(a="1", b="2"), uid))
    harness.written = WrittenChildren()
    await harness.execute(Apply(settings(a="1"), uid))
    assert (await harness.config_map()).data == {"a": "1"}


async def test_a_child_that_may_be_merged_is_changed_by_one_request(harness: Harness) -> None:
    uid = await harness.created(settings(merge=True, a="1", b="2"))
    async with Client(harness.client.connection, field_manager="somebody") as somebody:
        await somebody.patch(ConfigMap, "settings", {"data": {"c": "theirs"}}, harness.namespace)
    before = harness.client.requests
    assert await harness.execute(Apply(settings(merge=True, a="3", b="2"), uid)) is ActionStatus.DONE
    assert harness.client.requests - before == 1
    merged = await harness.config_map()
    assert merged.data == {"a": "3", "b": "2", "c": "theirs"}
    assert merged.metadata.annotations[labels.DIGEST] == settings(a="3", b="2").digest


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_child_that_was_merged_loses_the_fields_that_its_body_omits(
    harness: Harness, restarted: bool
) -> None:
    uid = await harness.created(settings(merge=True, a="1", b="2", c="3"))
    harness.written = WrittenChildren()
    await harness.execute(Apply(settings(merge=True, a="1", b="3", c="3"), uid))
    await harness.execute(Apply(settings(merge=True, a="1", b="4", c="3"), uid))
    if restarted:
        harness.written = WrittenChildren()
    await harness.execute(Apply(settings(merge=True, a="1"), uid))
    assert (await harness.config_map()).data == {"a": "1"}


async def test_another_object_under_the_name_is_not_changed_by_a_merge(harness: Harness) -> None:
    uid = await harness.created(settings(merge=True, a="1"))
    await harness.client.delete(ConfigMap, "settings", harness.namespace)
    foreign = await harness.create_foreign()
    result = await harness.execute(Apply(settings(merge=True, a="2"), uid))
    assert result is ActionStatus.NAME_CONFLICT
    assert await harness.config_map() == foreign


async def test_a_service_loses_the_ports_that_its_body_omits(harness: Harness) -> None:
    spec = {"clusterIP": "None", "selector": {"app": "x"}}
    ports = [{"name": "http", "port": 80}]
    uid = await harness.created(Child(Service, "s", {"spec": {**spec, "ports": ports}}))
    assert await harness.execute(Apply(Child(Service, "s", {"spec": spec}), uid)) is ActionStatus.DONE
    service = await harness.client.get(dynamic_kind(Service.resource), "s", harness.namespace)
    stored_spec = service.raw["spec"]
    assert isinstance(stored_spec, dict)
    assert "ports" not in stored_spec
    assert (stored_spec["selector"], stored_spec["clusterIP"]) == ({"app": "x"}, "None")


async def test_a_name_taken_by_a_foreign_object_is_a_conflict_and_the_object_is_left_alone(
    harness: Harness,
) -> None:
    foreign = await harness.create_foreign(labels={labels.UID: harness.owner.uid})
    assert await harness.execute(Apply(settings(a="1"))) is ActionStatus.NAME_CONFLICT
    assert await harness.config_map() == foreign
    assert not harness.returned


async def test_a_name_taken_by_an_object_that_is_being_deleted_is_waited_for(harness: Harness) -> None:
    await harness.create_foreign(finalizers=["example.com/hold"])
    await harness.client.delete(ConfigMap, "settings", harness.namespace)
    assert await harness.execute(Apply(settings(a="1"))) is ActionStatus.TERMINATING


async def test_a_child_that_no_cache_has_shown_yet_is_brought_up_to_date(harness: Harness) -> None:
    uid = await harness.created(settings(a="1", b="2"))
    assert await harness.execute(Apply(settings(a="3"))) is ActionStatus.DONE
    updated = await harness.config_map()
    assert (updated.metadata.uid, updated.data) == (uid, {"a": "3"})


async def test_a_child_without_our_labels_is_taken_over(harness: Harness) -> None:
    body = child_body(harness.owner, settings(a="1"))
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    del metadata["labels"]
    await harness.client.create(ConfigMap, body, harness.namespace)
    assert await harness.execute(Apply(settings(a="1"))) is ActionStatus.DONE
    assert (await harness.config_map()).metadata.labels[labels.UID] == harness.owner.uid


async def test_another_object_under_the_name_is_not_changed_by_an_apply_to_the_old_uid(
    harness: Harness,
) -> None:
    uid = await harness.created(settings(a="1"))
    await harness.execute(Apply(settings(a="2"), uid))  # from here on without looking first
    await harness.client.delete(ConfigMap, "settings", harness.namespace)
    foreign = await harness.create_foreign()
    assert await harness.execute(Apply(settings(a="3"), uid)) is ActionStatus.NAME_CONFLICT
    assert await harness.config_map() == foreign


@pytest.mark.parametrize("applied", [False, True], ids=["never applied before", "applied before"])
async def test_a_child_that_was_deleted_meanwhile_is_not_created_by_an_apply(
    harness: Harness, applied: bool
) -> None:
    uid = await harness.created(settings(a="1"))
    if applied:
        await harness.execute(Apply(settings(a="2"), uid))
    await harness.client.delete(ConfigMap, "settings", harness.namespace)
    assert await harness.execute(Apply(settings(a="3"), uid)) is ActionStatus.RETRY
    assert not (await harness.client.list(ConfigMap, harness.namespace, labels=labels.UID)).items


async def test_a_generated_child_is_made_once(harness: Harness) -> None:
    await harness.created(KEY)
    first = await harness.client.get(Secret, "key", harness.namespace)
    assert first.data["key"]
    assert await harness.execute(Apply(KEY)) is ActionStatus.DONE
    assert await harness.client.get(Secret, "key", harness.namespace) == first
    assert harness.generated == 1, "what we have created is read, not created again"


async def test_a_generated_child_that_was_deleted_is_made_again(harness: Harness) -> None:
    await harness.created(KEY)
    await harness.client.delete(Secret, "key", harness.namespace)
    await harness.created(KEY)
    assert (await harness.client.get(Secret, "key", harness.namespace)).data["key"]


async def test_a_generated_child_that_lost_its_label_gets_it_back_with_the_same_content(
    harness: Harness,
) -> None:
    await harness.created(KEY)
    first = await harness.client.get(Secret, "key", harness.namespace)
    patch = {"metadata": {"labels": {labels.UID: None}}}
    await harness.client.patch(SecretMetadata, "key", patch, harness.namespace)
    assert await harness.execute(Apply(KEY)) is ActionStatus.DONE
    secret = await harness.client.get(Secret, "key", harness.namespace)
    assert (secret.data, secret.metadata.labels) == (first.data, first.metadata.labels)


async def test_a_child_is_removed_by_uid(harness: Harness) -> None:
    uid = await harness.created(settings(a="1"))
    assert await harness.execute(Remove(ConfigMap, "settings", uid)) is ActionStatus.DONE
    before = harness.client.requests
    assert await harness.execute(Remove(ConfigMap, "settings", uid)) is ActionStatus.DONE
    assert harness.client.requests == before, "the cache may still show it"
    harness.written = WrittenChildren()
    assert await harness.execute(Remove(ConfigMap, "settings", uid)) is ActionStatus.DONE
    foreign = await harness.create_foreign()
    assert await harness.execute(Remove(ConfigMap, "settings", uid)) is ActionStatus.DONE
    assert await harness.config_map() == foreign


async def test_a_patch_changes_only_the_object_of_its_uid(harness: Harness) -> None:
    target = await harness.create_foreign()
    patch = Patch(ConfigMap, "settings", harness.namespace, target.metadata.uid, {"data": {"mine": "1"}})
    assert await harness.execute(patch) is ActionStatus.DONE
    assert (await harness.config_map()).data == {"theirs": "1", "mine": "1"}
    await harness.client.delete(ConfigMap, "settings", harness.namespace)
    assert await harness.execute(patch) is ActionStatus.RETRY
    other = await harness.create_foreign()
    assert await harness.execute(patch) is ActionStatus.RETRY
    assert await harness.config_map() == other


def test_children_that_are_gone_are_forgotten() -> None:
    fields = frozenset({"/data/a"})
    written = WrittenChildren({"a": "1", "b": "2"}, {"a", "c"}, {"a": fields, "b": fields}, {"a", "b"})
    written.keep_only({"a"})
    assert written == WrittenChildren({"a": "1"}, {"a"}, {"a": fields}, {"a"})


async def test_a_check_creates_nothing_and_says_what_the_api_server_would(harness: Harness) -> None:
    assert await harness.execute(Check(settings(a="1"))) is ActionStatus.DONE
    with pytest.raises(NotFound):
        await harness.config_map()
    invalid = Child(ConfigMap, "settings", {"data": {"not a key": "1"}})
    with pytest.raises(Invalid):
        await harness.execute(Check(invalid))
    await harness.created(settings(a="1"))
    assert await harness.execute(Check(settings(a="2"))) is ActionStatus.DONE, "the name is taken"


async def test_removed_job_does_not_leave_its_pods_behind(harness: Harness) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}
    job = Child(Job, "training", {"spec": {"template": {"spec": pod}}})
    await harness.execute(Apply(job))
    uid = (await harness.client.get(Job, "training", harness.namespace)).metadata.uid
    assert await harness.execute(Remove(Job, "training", uid)) is ActionStatus.DONE
    with pytest.raises(NotFound):  # with the finalizer `orphan` it would wait for the garbage collector
        await harness.client.get(Job, "training", harness.namespace)
