from decimal import Decimal
from typing import NamedTuple

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.environment import (
    MissingError,
    Sources,
    build_command,
    build_environment,
    expand_references,
)
from argosy.local.node.pod_types import Pod
from argosy.local.service_types import Service


def pod(*env: Json, **container: object) -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u-1",
                "labels": {"app": "x", "tier": 'a"b'},
                "annotations": {"note": "hi"},
            },
            "spec": {
                "nodeName": "node-2",
                "serviceAccountName": "robot",
                "containers": [{"name": "c", "env": list(env), **container}],
            },
        },
        Pod,
    )


def service(name: str, namespace: str = "ns", address: str = "10.96.0.7") -> Service:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "clusterIP": address,
                "ports": [{"name": "web-1", "port": 80}, {"name": "m", "port": 9, "protocol": "UDP"}],
            },
        },
        Service,
    )


def sources(*services: Service) -> Sources:
    return Sources(
        config_map={"settings": {"color": b"blue", "size": b"9"}}.get,
        secret={"keys": {"token": b"s3cret"}}.get,
        services=services,
        node_name="node-2",
        host_ip="10.88.0.1",
        pod_ip="10.88.0.9",
        node_allocatable={"cpu": Decimal(2), "memory": Decimal(1 << 30)},
    )


EXPANSIONS = {
    "defined name: replaced": ("$(A)-x", "1-x"),
    "undefined name: kept": ("$(NOPE)", "$(NOPE)"),
    "two dollar signs: one, and no reference": ("$$(A)", "$(A)"),
    "single dollar sign: kept": ("cost $5", "cost $5"),
    "adjacent references: both replaced": ("$(A)$(A)", "11"),
    "unclosed reference: kept": ("$(A", "$(A"),
}


@pytest.mark.parametrize("case", EXPANSIONS)
def test_expand(case: str) -> None:
    text, want = EXPANSIONS[case]
    assert expand_references(text, {"A": "1"}) == want


class Case(NamedTuple):
    env: list[Json]
    want: dict[str, str]
    container: Json | None = None


CASES = {
    "reference to an earlier variable: replaced": Case(
        [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}], {"A": "1", "B": "12"}
    ),
    "reference to a later variable: kept": Case(
        [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}], {"B": "$(A)", "A": "1"}
    ),
    "fieldRef: fields of the pod": Case(
        [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in {
                "N": "metadata.name",
                "S": "metadata.namespace",
                "U": "metadata.uid",
                "L": "metadata.labels['app']",
                "O": "spec.nodeName",
                "R": "spec.serviceAccountName",
                "I": "status.podIP",
                "H": "status.hostIP",
            }.items()
        ],
        {
            "N": "p",
            "S": "ns",
            "U": "u-1",
            "L": "x",
            "O": "node-2",
            "R": "robot",
            "I": "10.88.0.9",
            "H": "10.88.0.1",
        },
    ),
    "resourceFieldRef with a divisor: rounded up": Case(
        [{"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}],
        {"M": "2"},
        {"resources": {"limits": {"memory": "1500Ki"}}},
    ),
    "resourceFieldRef without a limit: the node's capacity": Case(
        [{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}], {"C": "2"}
    ),
    "keys of a ConfigMap and a Secret: their values": Case(
        [
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
            {"name": "T", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        ],
        {"C": "blue", "T": "s3cret"},
    ),
    "optional source missing: no variable": Case(
        [
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
            {
                "name": "D",
                "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "x", "optional": True}},
            },
        ],
        {},
    ),
    "envFrom with a prefix: env takes precedence": Case(
        [{"name": "P_color", "value": "red"}],
        {"P_color": "red", "P_size": "9"},
        {"envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}]},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_environment(case: Case) -> None:
    manifest = pod(*case.env, **(case.container or {}))
    assert build_environment(manifest, manifest.spec.containers[0], sources()) == case.want


MISSING = {
    "ConfigMap missing: error names it": (
        {"configMapKeyRef": {"name": "none", "key": "x"}},
        'configmap "none" not found',
    ),
    "key of a ConfigMap missing: error names it": (
        {"configMapKeyRef": {"name": "settings", "key": "x"}},
        "couldn't find key x in ConfigMap ns/settings",
    ),
    "Secret missing: error names it": (
        {"secretKeyRef": {"name": "none", "key": "x"}},
        'secret "none" not found',
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_missing_sources_are_errors(what: str) -> None:
    source, want = MISSING[what]
    manifest = pod({"name": "A", "valueFrom": source})
    with pytest.raises(MissingError) as caught:
        build_environment(manifest, manifest.spec.containers[0], sources())
    assert str(caught.value) == want


def test_variables_for_services_of_the_namespace_and_the_api_server() -> None:
    manifest = pod()
    environment = build_environment(
        manifest,
        manifest.spec.containers[0],
        sources(
            service("my-web"), service("kubernetes", "default", "10.96.0.1"), service("far", "elsewhere")
        ),
    )
    assert environment["MY_WEB_SERVICE_HOST"] == "10.96.0.7"
    assert environment["MY_WEB_SERVICE_PORT"] == "80"
    assert environment["MY_WEB_SERVICE_PORT_WEB_1"] == "80"
    assert environment["MY_WEB_PORT_9_UDP"] == "udp://10.96.0.7:9"
    assert environment["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
    assert not any(name.startswith("FAR_") for name in environment)


def test_without_service_links_only_the_api_servers_variables_are_set() -> None:
    manifest = pod()
    manifest.spec.enable_service_links = False
    environment = build_environment(
        manifest,
        manifest.spec.containers[0],
        sources(service("web"), service("kubernetes", "default", "10.96.0.1")),
    )
    assert "KUBERNETES_SERVICE_HOST" in environment
    assert "WEB_SERVICE_HOST" not in environment


def test_command_and_arguments_are_expanded() -> None:
    container = pod(command=["run", "$(A)"], args=["$(B)", "$$(A)"]).spec.containers[0]
    assert build_command(container, {"A": "1"}) == ["run", "1", "$(B)", "$(A)"]
