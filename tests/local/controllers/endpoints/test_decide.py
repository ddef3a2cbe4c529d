"""Tests for the EndpointSlices of a Service."""

from collections.abc import Mapping, Sequence

import msgspec

from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.endpoints.decide import Plan, decide
from argosy.local.service_types import EndpointSlice, Service
from tests.support.scheduler_objects import START, Json, pod


def service(**spec: object) -> Service:
    fields = {
        "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    } | spec
    metadata = {"name": "web", "namespace": "default", "uid": "s1", "labels": {"team": "a"}}
    return msgspec.convert({"metadata": metadata, "spec": fields}, Service)


def web(name: str, *, ready: bool = True, port: int = 8080, address: str = "10.0.0.1", **more: object) -> Pod:
    containers = [{"name": "main", "ports": [{"name": "http", "containerPort": port}]}]
    status: Json = {
        "podIP": address,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    metadata: Json = {"deletionTimestamp": START} if more.pop("deleting", False) else {}
    phase = str(more.pop("phase", "Running"))
    spec: Json = {"containers": containers, **more}
    return pod(name, node="n1", phase=phase, spec=spec, status=status, metadata=metadata)


def apply(plan: Plan, slices: Sequence[EndpointSlice] = ()) -> list[EndpointSlice]:
    """The slices after the plan is carried out."""
    after = {piece.metadata.name: piece for piece in slices if piece not in plan.delete}
    for number, wanted in enumerate(plan.write):
        name = wanted.name or f"made-{len(after)}-{number}"
        meta = ObjectMeta(name=name, namespace="default", labels=wanted.labels)
        after[name] = EndpointSlice(meta, "IPv4", wanted.endpoints, list(wanted.ports))
    return list(after.values())


def plan(
    obj: Service, pods: Sequence[Pod], slices: Sequence[EndpointSlice] = (), zones: Mapping[str, str] = {}
) -> Plan:
    return decide(obj, pods, slices, zones)


def test_a_ready_pod_is_an_endpoint() -> None:
    (endpoint_slice,) = plan(service(), [web("a")], zones={"n1": "z1"}).write
    assert endpoint_slice.name == ""
    assert endpoint_slice.labels == {
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert msgspec.to_builtins(list(endpoint_slice.ports)) == [
        {"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": None}
    ]
    assert msgspec.to_builtins(endpoint_slice.endpoints) == [
        {
            "addresses": ("10.0.0.1",),
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "name": "a", "namespace": "default", "uid": "uid-default-a"},
            "nodeName": "n1",
            "zone": "z1",
        }
    ]


def test_endpoint_conditions_follow_the_pod() -> None:
    pods = [web("a", ready=False), web("b", deleting=True), web("c", phase="Succeeded"), web("d", address="")]
    (endpoint_slice,) = plan(service(), pods).write
    shown = [(e.target_ref.name if e.target_ref else "", e.conditions) for e in endpoint_slice.endpoints]
    assert [(name, c.ready, c.serving, c.terminating) for name, c in shown] == [
        ("a", False, False, False),
        ("b", False, True, True),
    ]


def test_publish_not_ready_addresses_makes_endpoints_ready() -> None:
    (endpoint_slice,) = plan(service(publishNotReadyAddresses=True), [web("a", ready=False)]).write
    assert endpoint_slice.endpoints[0].conditions.ready is True
    assert endpoint_slice.endpoints[0].conditions.serving is False


def test_endpoints_of_a_headless_service_have_host_names() -> None:
    pods = [web("a", hostname="a-0", subdomain="web"), web("b", hostname="b-0", subdomain="other")]
    (endpoint_slice,) = plan(service(clusterIP="None"), pods).write
    assert endpoint_slice.labels["service.kubernetes.io/headless"] == ""
    assert [endpoint.hostname for endpoint in endpoint_slice.endpoints] == ["a-0", ""]


def test_a_service_without_pods_has_one_empty_slice() -> None:
    (endpoint_slice,) = plan(service(), []).write
    assert (endpoint_slice.ports, endpoint_slice.endpoints) == ((), [])
    slices = apply(plan(service(), []))
    assert plan(service(), [], slices) == Plan()


def test_the_empty_slice_is_reused_for_new_pods() -> None:
    slices = apply(plan(service(), []))
    after = plan(service(), [web("a")], slices)
    assert [wanted.name for wanted in after.write] == [slices[0].metadata.name]
    assert after.delete == []


def test_pods_with_different_target_ports_are_in_different_slices() -> None:
    written = plan(service(), [web("a"), web("b", port=9090)]).write
    assert [[port.port for port in wanted.ports] for wanted in written] == [[8080], [9090]]


def test_a_pod_without_the_named_port_has_no_endpoint() -> None:
    metrics_service = service(ports=[{"port": 80, "targetPort": "metrics"}])
    assert [wanted.endpoints for wanted in plan(metrics_service, [web("a")]).write] == [[]]


def test_a_slice_has_at_most_a_hundred_endpoints_which_keep_their_slice() -> None:
    pods = [web(f"p{number:03}") for number in range(150)]
    slices = apply(plan(service(), pods))
    assert sorted(len(piece.endpoints or ()) for piece in slices) == [50, 100]
    assert plan(service(), pods, slices) == Plan(), "a second look writes nothing"
    after = plan(service(), pods[1:], slices)
    assert len(after.write) == 1
    assert len(after.write[0].endpoints) == 99
    few = plan(service(), pods[100:], slices)
    assert len(few.write) + len(few.delete) == 1, "the slice that emptied is deleted, the other unchanged"


def test_labels_of_the_service_are_copied_to_its_slices() -> None:
    slices = apply(plan(service(), [web("a")]))
    changed = service()
    changed.metadata.labels = {"team": "b"}
    (wanted,) = plan(changed, [web("a")], slices).write
    assert wanted.labels["team"] == "b"
