"""Decoding, defaults and server-side apply have the same results as in a real kube-apiserver."""

import copy
import secrets
from collections.abc import Iterator
from typing import NamedTuple, cast

import pytest

from argosy.local.schema.builtin import KindInfo, builtin_kinds
from argosy.local.schema.codec.decode import decode
from argosy.local.schema.defaults.objects import apply_defaults, prepare_for_create
from argosy.local.schema.json_patch import merge_patch
from argosy.local.schema.model import Json
from argosy.local.schema.ssa.apply import Conflicts, apply
from argosy.local.schema.ssa.update import excluding, update_managed_fields
from argosy.local.schema.strategic_merge import strategic_merge_patch
from tests.support.differential import APPLY, MERGE, STRATEGIC, Caller, Step
from tests.support.servers import Server

KINDS = {(info.group, info.version, info.kind): info for info in builtin_kinds()}
CONTAINER: Json = {
    "name": "c",
    "image": "i",
    "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 0},
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "ports": [{"containerPort": 80}],
    "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
}
VOLUMES: list[Json] = [
    {"name": "a"},
    {"name": "b", "configMap": {"name": "x"}},
    {"name": "c", "hostPath": {"path": "/x"}},
    {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
]
TEMPLATE: Json = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [CONTAINER],
        "volumes": VOLUMES,
        "hostNetwork": False,
        "nodeSelector": {},
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsUser": 0},
    },
}
ONCE: Json = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
SELECTED: Json = {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}
RBAC = "rbac.authorization.k8s.io/v1"

CREATED: dict[str, Json] = {
    "ConfigMap: as kube-apiserver": {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b", "e": ""}, "binaryData": {},
    },
    "Secret with stringData: as kube-apiserver": {
        "apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"},
    },
    "Service of type ExternalName: as kube-apiserver": {
        "apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName", "externalName": "a.b"},
    },
    "Deployment: as kube-apiserver": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": SELECTED},
    "ReplicaSet: as kube-apiserver": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": SELECTED},
    "Job: as kube-apiserver": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": ONCE}},
    "EndpointSlice without endpoints: as kube-apiserver": {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
    },
    "Role without rules: as kube-apiserver": {"apiVersion": RBAC, "kind": "Role"},
    "RoleBinding: as kube-apiserver": {
        "apiVersion": RBAC, "kind": "RoleBinding", "roleRef": {"kind": "Role", "name": "x"},
        "subjects": [{"kind": "User", "name": "u"}],
    },
    "Lease: as kube-apiserver": {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseDurationSeconds": 10},
    },
    "NetworkPolicy: as kube-apiserver": {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
    },
    "ResourceQuota: as kube-apiserver": {
        "apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "10", "cpu": 2}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def reference(real_apiserver: Server) -> Iterator[Caller]:
    with Caller(real_apiserver) as caller:
        yield caller


@pytest.mark.parametrize("body", CREATED.values(), ids=CREATED.keys())
def test_new_object_is_stored_as_in_kubernetes(reference: Caller, body: Json) -> None:
    name = f"t{secrets.token_hex(4)}"
    sent: Json = {**copy.deepcopy(body), "metadata": {"name": name}}
    info = kind_of(body)
    answer = reference.send(Step("POST", f"{collection(info)}?fieldManager=me", sent))
    assert answer.code == 201, answer.body
    real = cast("Json", answer.body)
    ours = copy.deepcopy(sent)
    assert decode(ours, info.schema) == []
    apply_defaults(info.group, info.kind, ours)
    ours = update_managed_fields(
        None,
        ours,
        manager="me",
        api_version=info.api_version,
        time=time_of(real),
        schema=info.schema,
        resets=excluding("status"),
    )
    take_over(ours, real)
    prepare_for_create(info.group, info.kind, ours)
    assert ours == real


class Write(NamedTuple):
    manager: str
    body: Json
    type: str = APPLY
    force: bool = False


def deployment(image: str = "i:1", **more: object) -> Json:
    container: Json = {"name": "c", "image": image}
    container.update({k: v for k, v in more.items() if k in ("env", "ports")})
    spec = {k: v for k, v in more.items() if k == "replicas"}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    return {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec}}


ENV: list[Json] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
HISTORY = {
    "alice applies a new object": Write(
        "alice", deployment(replicas=2, env=ENV, ports=[{"containerPort": 80}])
    ),
    "alice applies it again": Write("alice", deployment(replicas=2, env=ENV, ports=[{"containerPort": 80}])),
    "alice applies it without a variable": Write("alice", deployment(replicas=2, env=ENV[1:])),
    "bob applies the same replicas": Write("bob", deployment(replicas=2)),
    "bob applies other replicas: conflict": Write("bob", deployment("i:2", replicas=3)),
    "bob forces other replicas": Write("bob", deployment("i:2", replicas=3), force=True),
    "alice applies it without replicas": Write("alice", deployment("i:2", env=ENV[1:])),
    "carol patches replicas": Write("carol", {"spec": {"replicas": 5}}, MERGE),
    "bob applies other replicas after a patch: conflict": Write("bob", deployment("i:2", replicas=3)),
    "carol adds a container": Write(
        "carol", {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "z"}]}}}}, STRATEGIC
    ),
    "dan applies variables before and after an existing one": Write(
        "dan", deployment(env=[{"name": "Z", "value": "1"}, ENV[1], {"name": "Y", "value": "1"}]), force=True
    ),
    "finalizers are added": Write("fin", {"metadata": {"finalizers": ["x.io/a", "x.io/b"]}}, MERGE),
    "finalizers are removed": Write(
        "fin", {"metadata": {"finalizers": None, "annotations": {"q": "1"}}}, MERGE
    ),
}


def test_sequence_of_writes_has_the_same_managed_fields(reference: Caller) -> None:
    info = KINDS["apps", "v1", "Deployment"]
    name = f"t{secrets.token_hex(4)}"
    path = f"{collection(info)}/{name}"
    live: Json | None = None
    for description, write in HISTORY.items():
        body = copy.deepcopy(write.body)
        if write.type == APPLY:
            body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, **body}
        force = "&force=true" if write.force else ""
        answer = reference.send(
            Step("PATCH", f"{path}?fieldManager={write.manager}{force}", body, type=write.type)
        )
        real = cast("Json", answer.body)
        try:
            ours = written(live, body, write, info, real)
        except Conflicts as conflicts:
            assert answer.code == 409, description
            assert real["message"] == str(conflicts), description
            details = real["details"]
            assert isinstance(details, dict)
            assert details["causes"] == conflicts.causes(), description
            continue
        assert answer.code < 300, (description, real)
        take_over(ours, real)
        assert {**ours, "status": None} == {**real, "status": None}, description
        live = real


def written(live: Json | None, body: Json, write: Write, info: KindInfo, real: Json) -> Json:
    """What the library makes of one write."""
    time, resets = time_of(real), excluding("status")
    if write.type == APPLY:
        result = apply(
            live,
            body,
            manager=write.manager,
            api_version=info.api_version,
            time=time,
            schema=info.schema,
            force=write.force,
            resets=resets,
        )
    else:
        assert live is not None
        patched = merge_patch(live, body) if write.type == MERGE else None
        result = patched or strategic_merge_patch(live, body, info.schema)
    result = copy.deepcopy(result)
    decode(result, info.schema)
    apply_defaults(info.group, info.kind, result)
    if write.type == APPLY:
        return result
    return update_managed_fields(
        live,
        result,
        manager=write.manager,
        api_version=info.api_version,
        time=time,
        schema=info.schema,
        resets=resets,
    )


def kind_of(body: Json) -> KindInfo:
    group, _, version = str(body["apiVersion"]).rpartition("/")
    return KINDS[group, version, str(body["kind"])]


def collection(info: KindInfo) -> str:
    root = f"/apis/{info.api_version}" if info.group else f"/api/{info.version}"
    return f"{root}/namespaces/default/{info.plural}"


def time_of(real: Json) -> str:
    """The time of the last change in the reference."""
    metadata = real.get("metadata")
    entries = metadata.get("managedFields", []) if isinstance(metadata, dict) else []
    return max((entry.get("time", "") for entry in entries), default="")


def take_over(ours: Json, real: Json) -> None:
    """What any two servers do differently."""
    mine, theirs = ours["metadata"], real["metadata"]
    assert isinstance(mine, dict)
    assert isinstance(theirs, dict)
    for key in ("uid", "resourceVersion", "creationTimestamp", "namespace", "generation"):
        if key in theirs:
            mine[key] = theirs[key]
