"""Requests: bodies, content types, unknown paths and methods, dry runs, field validation."""

import json
from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import APPLY, JSON_PATCH, STRATEGIC, Step, apply, get, patch, post, put
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    WIDGETS,
    config_map,
    deployment,
    pod,
    widget,
)

OBJECT = f"{CONFIG_MAPS}/a"
WHOLE_OBJECT = ("message", "details.causes.*.message")
"""Texts that repeat the whole object in the field order of Go's structs."""
MADE = post(CONFIG_MAPS, config_map(), shown=False)
DOUBLE = '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
DOUBLE_UNKNOWN = '{"x":1,"x":2,"y":{"z":1,"z":2},"list":[{"z":1,"z":2}]}'
UNKNOWN = {**config_map(), "nonsense": 1, "metadata": {"name": "a", "bogus": True}}


def with_double_unknown(body: str) -> str:
    return f"{DOUBLE_UNKNOWN[:-1]},{body[1:]}"


CASES: dict[str, list[Step]] = {
    "body that is not a JSON object: rejected": [
        post(CONFIG_MAPS, "nonsense"),
        post(CONFIG_MAPS, "{"),
        post(CONFIG_MAPS, ""),
        post(CONFIG_MAPS, "[]"),
        post(CONFIG_MAPS, "null"),
    ],
    "empty object as body: rejected for its missing name": [post(CONFIG_MAPS, "{}")],
    "YAML body: accepted": [
        post(
            CONFIG_MAPS,
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {k: 'v'}\n",
            "application/yaml",
        )
    ],
    "unknown content type: 415": [
        post(CONFIG_MAPS, config_map(), "text/plain"),
        post(CONFIG_MAPS, config_map(), "application/xml"),
        put(OBJECT, config_map(), "text/plain"),
    ],
    "no content type, or one with a charset: accepted": [
        post(CONFIG_MAPS, config_map(), ""),
        post(CONFIG_MAPS, config_map("b"), "application/json; charset=utf-8"),
    ],
    "unknown path: 404": [
        get("/api/v1/nonsense"),
        get("/api/v1/namespaces/$ns/nonsense"),
        get("/api/v1/namespaces/$ns/nonsense/a"),
        get("/api/v2/pods"),
        get("/apis/none.example.com/v1/things"),
        get("/apis/apps/v9/deployments"),
        get("/nonsense"),
        post("/api/v1/namespaces/$ns/nonsense", {}),
    ],
    "unknown subresource: 404": [
        MADE,
        get(f"{OBJECT}/status"),
        get(f"{OBJECT}/nonsense"),
        get(f"{PODS}/a/scale"),
    ],
    "method that a path does not support: 405": [
        MADE,
        Step("POST", OBJECT, config_map()),
        Step("PUT", CONFIG_MAPS, config_map()),
        Step("PATCH", CONFIG_MAPS, {}, "application/merge-patch+json"),
    ],
    "unknown method: 405": [
        MADE,
        *(
            Step(method, path)
            for path in (OBJECT, CONFIG_MAPS)
            for method in ("PROPFIND", "TRACE", "LINK", "FLY", "get")
        ),
        Step("FLY", "/version"),
        Step("FLY", "/api/v1"),
    ],
    "method that a subresource does not support: 405": [
        post(PODS, pod(), shown=False),
        *(Step(method, f"{PODS}/a/{part}") for method in ("POST", "DELETE") for part in ("status", "log")),
        Step("GET", f"{PODS}/a/binding"),
        Step("PUT", f"{PODS}/a/eviction", {}),
        Step("DELETE", "/version"),
        Step("POST", "/version", {}),
    ],
    "HEAD: 405": [
        MADE,
        Step("HEAD", OBJECT),
        Step("HEAD", CONFIG_MAPS),
        Step("HEAD", "/api"),
    ],
    "OPTIONS: 405": [MADE, Step("OPTIONS", OBJECT), Step("OPTIONS", CONFIG_MAPS)],
    "create of a namespaced kind without a namespace: 405": [post("/api/v1/configmaps", config_map())],
    "dry run of each kind of write: usual response, nothing stored": [
        post(f"{CONFIG_MAPS}?dryRun=All", config_map()),
        get(OBJECT),
        MADE,
        put(f"{OBJECT}?dryRun=All", config_map(data={"k": "9"})),
        patch(f"{OBJECT}?dryRun=All", {"data": {"k": "9"}}),
        apply(f"{OBJECT}?dryRun=All&force=true", config_map(data={"key": "9"})),
        get(OBJECT),
    ],
    "dry run of an invalid write: rejected": [MADE, post(f"{CONFIG_MAPS}?dryRun=All", config_map())],
    "dry run with generateName: response has a name": [
        post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"generateName": "x-"}})
    ],
    "invalid dryRun: rejected": [
        post(f"{CONFIG_MAPS}?dryRun=Some", config_map()),
        post(f"{CONFIG_MAPS}?dryRun=true", config_map()),
    ],
    "unknown fields without fieldValidation: dropped with a warning": [post(CONFIG_MAPS, UNKNOWN)],
    "unknown fields with fieldValidation=Ignore: dropped without a warning": [
        post(f"{CONFIG_MAPS}?fieldValidation=Ignore", UNKNOWN)
    ],
    "unknown fields with fieldValidation=Warn: dropped with a warning": [
        post(f"{CONFIG_MAPS}?fieldValidation=Warn", UNKNOWN)
    ],
    "unknown fields with fieldValidation=Strict: rejected": [
        post(f"{CONFIG_MAPS}?fieldValidation=Strict", UNKNOWN)
    ],
    "unknown fieldValidation: rejected": [post(f"{CONFIG_MAPS}?fieldValidation=Nearly", config_map())],
    "duplicate fields: rejected with Strict, warning with Warn": [
        post(f"{CONFIG_MAPS}?fieldValidation=Strict", DOUBLE),
        post(f"{CONFIG_MAPS}?fieldValidation=Warn", DOUBLE),
    ],
    "unknown fields that are duplicate: both reported only in patches and for custom resources": [
        post(f"{CONFIG_MAPS}?fieldValidation=Warn", with_double_unknown(DOUBLE)),
        patch(f"{OBJECT}?fieldValidation=Warn", DOUBLE_UNKNOWN),
        *DEFINED,
        put(f"{WIDGETS}/a?fieldValidation=Warn", with_double_unknown(json.dumps(widget()))),
        post(f"{WIDGETS}?fieldValidation=Strict", with_double_unknown(json.dumps(widget()))),
        post(f"{WIDGETS}?fieldValidation=Warn", with_double_unknown(json.dumps(widget()))),
        patch(f"{WIDGETS}/a?fieldValidation=Warn", DOUBLE_UNKNOWN),
    ],
    "unknown nested fields with fieldValidation=Strict: rejected with their paths": [
        post(
            f"{PODS}?fieldValidation=Strict",
            pod(container={"imagee": "x", "resources": {"limit": {}}}, restartPolicyy="Never"),
        ),
        post(f"{DEPLOYMENTS}?fieldValidation=Strict", deployment(replica=3)),
    ],
    "unknown fields in patches: rejected with Strict, warning with Warn": [
        MADE,
        patch(f"{OBJECT}?fieldValidation=Strict", {"nonsense": 1}, hide=WHOLE_OBJECT),
        patch(f"{OBJECT}?fieldValidation=Warn", {"nonsense": 1, "data": {"z": "1"}}),
        patch(f"{OBJECT}?fieldValidation=Strict", {"nonsense": 1}, STRATEGIC),
        patch(
            f"{OBJECT}?fieldValidation=Strict",
            [{"op": "add", "path": "/nonsense", "value": 1}],
            JSON_PATCH,
            hide=WHOLE_OBJECT,
        ),
        put(f"{OBJECT}?fieldValidation=Strict", UNKNOWN),
    ],
    "unknown fields of custom resources: rejected with Strict, warning with Warn": [
        *DEFINED,
        post(f"{WIDGETS}?fieldValidation=Strict", widget(nonsense=1, parts=[{"name": "a", "more": 1}])),
        post(f"{WIDGETS}?fieldValidation=Warn", widget(nonsense=1, parts=[{"name": "a", "more": 1}])),
        post(f"{WIDGETS}?fieldValidation=Strict", widget("b", metadata={"bogus": 1})),
        patch(f"{WIDGETS}/a?fieldValidation=Strict", {"spec": {"nonsense": 2}}, hide=WHOLE_OBJECT),
        patch(f"{WIDGETS}/a?fieldManager=m&fieldValidation=Strict", widget(nonsense=1), APPLY),
    ],
    "body above the size limit: rejected": [
        post(CONFIG_MAPS, config_map(data={"k": "x" * 1_100_000})),
        post(CONFIG_MAPS, config_map(data={"k": "x" * 4_000_000})),
    ],
    "annotations above the size limit: rejected": [
        post(CONFIG_MAPS, config_map(annotations={"k": "x" * 262_145}))
    ],
    "invalid timeoutSeconds, or force for a merge patch: rejected": [
        MADE,
        get(f"{CONFIG_MAPS}?timeoutSeconds=x"),
        patch(f"{OBJECT}?force=perhaps&fieldManager=m", config_map(), APPLY),
        patch(f"{OBJECT}?force=true&fieldManager=m", {"data": {"a": "b"}}),
    ],
    "health and version endpoints: as kube-apiserver": [
        get("/healthz"),
        get("/livez"),
        get("/readyz"),
        get("/version", only=("major", "minor", "platform")),
    ],
    "/api and /apis: as kube-apiserver": [
        get("/api", hide=("serverAddressByClientCIDRs",)),
        get("/apis", only=("kind", "apiVersion")),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_requests(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
