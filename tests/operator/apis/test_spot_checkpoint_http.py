"""Tests for the HTTP API of CheckpointBackups, before a real API server."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject
from argosy.engine.transport import HttpTransport
from argosy.kinds.migration import GROUP, CheckpointBackup, CheckpointRestore
from argosy.kinds.resource import Resource
from argosy.operator.apis.spot_checkpoint_http import (
    MAX_BODY_BYTES,
    RESTORE_NAMESPACE,
    RESTORE_POD,
    RESTORE_REQUESTED,
    CheckpointApi,
)
from argosy.wire.messages import HttpError, Request
from tests.support.operator_harness import Scene
from tests.support.servers import READER

Body = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
ALL = ("get", "list", "create", "update", "patch", "delete")


class Tenant:
    """A client of the API, which may use CheckpointBackups of one namespace and nothing else."""

    def __init__(self, api: CheckpointApi, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    async def ask(
        self, method: str, path: str, body: object = None, query: str = "", authorization: str = ""
    ) -> tuple[int, Body]:
        """Return status and body of the response."""
        value = authorization or f"Bearer {READER.token}"
        headers = [(b"authorization", value.encode()), (b"impersonate-user", b"system:admin")]
        request = Request(method, f"/api/v1/checkpoints{path}", query, headers)
        request.feed(body if isinstance(body, bytes) else json.dumps(body).encode())
        request.finish()
        try:
            response = await self.api.handle(request, request.path.strip("/").split("/")[1:])
        except HttpError as error:
            return error.status, {"message": str(error)}
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    def backup(self, name: str, **spec: object) -> Body:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
        wanted = {"schedule": "immediately", "podRef": {"name": "train-0"}, "resourceRef": reference}
        return {"metadata": {"name": name, "namespace": self.namespace}, "spec": {**wanted, **spec}}


@pytest.fixture
async def tenant(scene: Scene) -> AsyncIterator[Tenant]:
    transport = HttpTransport(Connection.from_kubeconfig(scene.server.kubeconfig))
    async with granted(scene):
        yield Tenant(CheckpointApi(transport), scene.namespace)
    await transport.close()


@asynccontextmanager
async def granted(scene: Scene) -> AsyncIterator[None]:
    """Grant the user READER the rights of a tenant, in the namespace of the test."""
    resources = [CheckpointBackup.resource.plural, CheckpointRestore.resource.plural]
    rules = [{"apiGroups": [GROUP], "resources": resources, "verbs": list(ALL)}]
    subject = {"kind": "User", "name": READER.name, "apiGroup": RBAC}
    binding = {"roleRef": {"kind": "Role", "name": "tenant", "apiGroup": RBAC}, "subjects": [subject]}
    metadata = {"metadata": {"name": "tenant"}}
    await scene.client.create(rbac_kind("Role"), {**metadata, "rules": rules}, scene.namespace)
    await scene.client.create(rbac_kind("RoleBinding"), {**metadata, **binding}, scene.namespace)
    yield


def rbac_kind(kind: str) -> type[ApiObject]:
    return dynamic_kind(Resource(RBAC, "v1", kind, f"{kind.lower()}s"))


async def test_a_checkpoint_is_created_listed_read_replaced_and_deleted(tenant: Tenant) -> None:
    one = f"/{tenant.namespace}/train"
    status, created = await tenant.ask("POST", "", tenant.backup("train"))
    assert (status, created["kind"]) == (201, "CheckpointBackup"), created
    status, listed = await tenant.ask("GET", "", query=f"namespace={tenant.namespace}")
    assert status == 200
    assert [item["metadata"]["name"] for item in listed["items"]] == ["train"]
    status, read = await tenant.ask("GET", one)
    assert (status, read["spec"]["podRef"]) == (200, {"name": "train-0"})
    changed = {**read, "spec": {**read["spec"], "stopPod": True}}
    status, replaced = await tenant.ask("PUT", one, changed)
    assert (status, replaced["spec"]["stopPod"]) == (200, True), replaced
    assert (await tenant.ask("PUT", one, changed))[0] == 409, "an outdated version replaces nothing"
    assert (await tenant.ask("DELETE", one))[0] == 200
    assert (await tenant.ask("GET", one))[0] == 404


async def test_a_restore_becomes_a_checkpointrestore_once(tenant: Tenant, scene: Scene) -> None:
    await tenant.ask("POST", "", tenant.backup("train"))
    path = f"/{tenant.namespace}/train/restore"
    status, restore = await tenant.ask("POST", path, {"targetPod": "again"})
    assert status == 201, restore
    assert restore["spec"] == {"backupRef": {"name": "train"}, "podName": "again"}
    assert (await tenant.ask("POST", path, {"targetPod": "again"}))[0] == 409
    assert (await scene.client.get(CheckpointRestore, "again", scene.namespace)).spec.pod_name == "again"
    shown = (await scene.client.get(CheckpointBackup, "train", scene.namespace)).metadata.annotations
    wanted = {RESTORE_REQUESTED: "true", RESTORE_NAMESPACE: tenant.namespace, RESTORE_POD: "again"}
    assert shown.items() >= wanted.items()
    missing = f"/{tenant.namespace}/other/restore"
    assert (await tenant.ask("POST", missing, {"targetPod": "third"}))[0] == 404


async def test_nobody_can_do_more_than_with_the_api_of_kubernetes(tenant: Tenant) -> None:
    """The connection of the API belongs to an administrator, as the operator's may."""
    assert (await tenant.ask("GET", ""))[0] == 403, "all namespaces"
    status, refused = await tenant.ask("GET", "/kube-system/train")
    assert status == 403
    assert READER.name in refused["message"], "a header chooses another user"
    backup = tenant.backup("train")
    backup["metadata"]["namespace"] = "kube-system"
    assert (await tenant.ask("POST", "", backup))[0] == 403
    assert (await tenant.ask("GET", "", authorization="Bearer wrong"))[0] == 401


def bad_requests() -> Iterator[tuple[str, str, object, int, str]]:
    yield "GET", "/a/..", None, 422, "name: invalid value"
    yield "GET", "/../secrets", None, 422, "namespace: invalid value"
    yield "GET", f"/a/{'x' * 300}", None, 422, "name: invalid value"
    yield "PATCH", "/a/b", {}, 404, "not found"
    yield "GET", "/a%2Fb%2Fc", None, 404, "not found"
    yield "POST", "", b"<html>", 400, "invalid body"
    yield "POST", "", b"\xff\xfe", 400, "invalid body"
    yield "POST", "", [], 400, "invalid body"
    yield "POST", "", {"metadata": {"name": "a"}}, 422, "metadata.namespace"
    yield "PUT", "/a/b", b"3", 400, "invalid body"
    yield "POST", "", b" " * (MAX_BODY_BYTES + 1), 413, "larger than"
    yield "POST", "/a/b/restore", {}, 400, "targetPod"
    yield "POST", "/a/b/restore", {"targetPod": "p", "node": "n"}, 400, "node"
    yield "POST", "/a/b/restore", {"targetPod": "../p"}, 422, "targetPod: invalid value"
    yield "POST", "/a/b/restore", {"targetPod": "p", "targetNamespace": "c"}, 422, 'must be "a"'


async def test_bad_requests_get_a_clear_answer(tenant: Tenant) -> None:
    for method, path, body, status, message in bad_requests():
        answer = await tenant.ask(method, path, body)
        assert answer[0] == status, (method, path, answer)
        assert message in answer[1]["message"], (method, path, answer)
    for authorization in ("Basic cm9vdDo=", "Bearer ", "Bearer"):
        assert (await tenant.ask("GET", "", authorization=authorization))[0] == 401, authorization


async def test_an_unknown_field_is_refused_by_the_api_server(tenant: Tenant) -> None:
    status, refused = await tenant.ask("POST", "", tenant.backup("train", stopPods=True))
    assert status == 400
    assert 'unknown field "spec.stopPods"' in refused["message"]


async def test_an_api_server_that_is_not_there_is_a_503() -> None:
    transport = HttpTransport(Connection("https://127.0.0.1:1", verify=False))
    status, answer = await Tenant(CheckpointApi(transport), "a").ask("GET", "")
    assert status == 503
    assert "cannot be reached" in answer["message"]
    await transport.close()
