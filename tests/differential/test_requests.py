"""Requests: bodies, content types, unknown paths and methods, dry runs, field validation."""

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
UNKNOWN = {**config_map(), "nonsense": 1, "metadata": {"name": "a", "bogus": True}}

CASES: dict[str, list[Step]] = {
    "a body that is no JSON is refused": [
        post(CONFIG_MAPS, "nonsense"),
        post(CONFIG_MAPS, "{"),
        post(CONFIG_MAPS, ""),
        post(CONFIG_MAPS, "[]"),
        post(CONFIG_MAPS, "null"),
    ],
    "an empty object is a nameless one": [post(CONFIG_MAPS, "{}")],
    "a body may be YAML": [
        post(
            CONFIG_MAPS,
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {k: 'v'}\n",
            "application/yaml",
        )
    ],
    "a content type that is not known is refused": [
        post(CONFIG_MAPS, config_map(), "text/plain"),
        post(CONFIG_MAPS, config_map(), "application/xml"),
        put(OBJECT, config_map(), "text/plain"),
    ],
    "a content type may be left out or carry a charset": [
        post(CONFIG_MAPS, config_map(), ""),
        post(CONFIG_MAPS, config_map("b"), "application/json; charset=utf-8"),
    ],
    "a path that is not there": [
        get("/api/v1/nonsense"),
        get("/api/v1/namespaces/$ns/nonsense"),
        get("/api/v1/namespaces/$ns/nonsense/a"),
        get("/api/v2/pods"),
        get("/apis/none.example.com/v1/things"),
        get("/apis/apps/v9/deployments"),
        get("/nonsense"),
        post("/api/v1/namespaces/$ns/nonsense", {}),
    ],
    "a subresource that is not there": [
        MADE,
        get(f"{OBJECT}/status"),
        get(f"{OBJECT}/nonsense"),
        get(f"{PODS}/a/scale"),
    ],
    "a method that is not there": [
        MADE,
        Step("POST", OBJECT, config_map()),
        Step("PUT", CONFIG_MAPS, config_map()),
        Step("PATCH", CONFIG_MAPS, {}, "application/merge-patch+json"),
    ],
    "an unknown method": [
        MADE,
        *(
            Step(method, path)
            for path in (OBJECT, CONFIG_MAPS)
            for method in ("PROPFIND", "TRACE", "LINK", "FLY", "get")
        ),
        Step("FLY", "/version"),
        Step("FLY", "/api/v1"),
    ],
    "methods of subresources": [
        post(PODS, pod(), shown=False),
        *(Step(method, f"{PODS}/a/{part}") for method in ("POST", "DELETE") for part in ("status", "log")),
        Step("GET", f"{PODS}/a/binding"),
        Step("PUT", f"{PODS}/a/eviction", {}),
        Step("DELETE", "/version"),
        Step("POST", "/version", {}),
    ],
    "HEAD is not supported": [
        MADE,
        Step("HEAD", OBJECT),
        Step("HEAD", CONFIG_MAPS),
        Step("HEAD", "/api"),
    ],
    "OPTIONS is not supported": [MADE, Step("OPTIONS", OBJECT), Step("OPTIONS", CONFIG_MAPS)],
    "a namespaced kind without a namespace cannot be made": [post("/api/v1/configmaps", config_map())],
    "a dry run answers as if, and changes nothing": [
        post(f"{CONFIG_MAPS}?dryRun=All", config_map()),
        get(OBJECT),
        MADE,
        put(f"{OBJECT}?dryRun=All", config_map(data={"k": "9"})),
        patch(f"{OBJECT}?dryRun=All", {"data": {"k": "9"}}),
        apply(f"{OBJECT}?dryRun=All&force=true", config_map(data={"key": "9"})),
        get(OBJECT),
    ],
    "a dry run refuses what would be refused": [MADE, post(f"{CONFIG_MAPS}?dryRun=All", config_map())],
    "a dry run makes a name": [post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"generateName": "x-"}})],
    "a bad dry run is refused": [
        post(f"{CONFIG_MAPS}?dryRun=Some", config_map()),
        post(f"{CONFIG_MAPS}?dryRun=true", config_map()),
    ],
    "unknown fields are ignored with a warning": [post(CONFIG_MAPS, UNKNOWN)],
    "unknown fields can be ignored": [post(f"{CONFIG_MAPS}?fieldValidation=Ignore", UNKNOWN)],
    "unknown fields can be warned of": [post(f"{CONFIG_MAPS}?fieldValidation=Warn", UNKNOWN)],
    "unknown fields can be refused": [post(f"{CONFIG_MAPS}?fieldValidation=Strict", UNKNOWN)],
    "field validation must be one of three": [post(f"{CONFIG_MAPS}?fieldValidation=Nearly", config_map())],
    "doubled fields": [
        post(f"{CONFIG_MAPS}?fieldValidation=Strict", DOUBLE),
        post(f"{CONFIG_MAPS}?fieldValidation=Warn", DOUBLE),
    ],
    "unknown fields deep inside a pod": [
        post(
            f"{PODS}?fieldValidation=Strict",
            pod(container={"imagee": "x", "resources": {"limit": {}}}, restartPolicyy="Never"),
        ),
        post(f"{DEPLOYMENTS}?fieldValidation=Strict", deployment(replica=3)),
    ],
    "unknown fields in patches": [
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
    "unknown fields of custom resources": [
        *DEFINED,
        post(f"{WIDGETS}?fieldValidation=Strict", widget(nonsense=1, parts=[{"name": "a", "more": 1}])),
        post(f"{WIDGETS}?fieldValidation=Warn", widget(nonsense=1, parts=[{"name": "a", "more": 1}])),
        post(f"{WIDGETS}?fieldValidation=Strict", widget("b", metadata={"bogus": 1})),
        patch(f"{WIDGETS}/a?fieldValidation=Strict", {"spec": {"nonsense": 2}}, hide=WHOLE_OBJECT),
        patch(f"{WIDGETS}/a?fieldManager=m&fieldValidation=Strict", widget(nonsense=1), APPLY),
    ],
    "a body too large is refused": [
        post(CONFIG_MAPS, config_map(data={"k": "x" * 1_100_000})),
        post(CONFIG_MAPS, config_map(data={"k": "x" * 4_000_000})),
    ],
    "annotations too large are refused": [post(CONFIG_MAPS, config_map(annotations={"k": "x" * 262_145}))],
    "options that are no numbers or truths are refused": [
        MADE,
        get(f"{CONFIG_MAPS}?timeoutSeconds=x"),
        patch(f"{OBJECT}?force=perhaps&fieldManager=m", config_map(), APPLY),
        patch(f"{OBJECT}?force=true&fieldManager=m", {"data": {"a": "b"}}),
    ],
    "health and version": [
        get("/healthz"),
        get("/livez"),
        get("/readyz"),
        get("/version", only=("major", "minor", "platform")),
    ],
    "the roots of the API": [
        get("/api", hide=("serverAddressByClientCIDRs",)),
        get("/apis", only=("kind", "apiVersion")),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_requests(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
