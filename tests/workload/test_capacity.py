from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Taint
from argosy.workload.capacity import Capacity, FreeNode, PodBatch, fits, parse_hourly_price, pod_requirements
from argosy.workload.model import Gang, Json, Role
from tests.support.workloads import role, workload

TAINT = Taint("dedicated", "NoSchedule", "research")


def node(name: str = "node-1", cpu: int = 4, **more: object) -> FreeNode:
    gpus = cast("int", more.pop("gpus", 0))
    free = {"cpu": cpu * 1000, "memory": 2**33, "pods": 110, "nvidia.com/gpu": gpus}
    return replace(FreeNode(name, free), **more)


def role_requesting(
    cpu: str = "1", gpus: int = 0, replicas: int = 3, name: str = "worker", **spec: object
) -> Role:
    requests: dict[str, object] = {"cpu": cpu, **({"nvidia.com/gpu": gpus} if gpus else {})}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return replace(role(name, replicas), template={"spec": {"containers": containers, **spec}})


def template(cpu: str) -> Json:
    return role_requesting(cpu).template


class Case(Struct):
    roles: tuple[Role, ...]
    nodes: tuple[FreeNode, ...]
    want: bool
    min_available: int = 3
    pending: tuple[PodBatch, ...] = ()


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}

NO_PRICES = ("", "x", "-1", "1e6", "1e9999999", "9" * 400, "inf", "NaN", "sNaN")


@pytest.mark.parametrize("text", NO_PRICES, ids=[text[:12] for text in NO_PRICES])
def test_what_is_no_price_is_not_known(text: str) -> None:
    assert parse_hourly_price(text) is None


CASES = {
    "all pods fit on one node: fits": Case((role_requesting(),), (node(cpu=3),), True),
    "two of three pods fit: does not fit": Case((role_requesting(),), (node(cpu=2),), False),
    "two of three pods fit, two are enough: fits": Case(
        (role_requesting(),), (node(cpu=2),), True, min_available=2
    ),
    "pods fit on two nodes together: fits": Case(
        (role_requesting(),), (node(cpu=2), node("node-2", cpu=1)), True
    ),
    "pod larger than the free capacity of every node: does not fit": Case(
        (role_requesting("2", replicas=1),), (node(cpu=1), node("node-2", cpu=1)), False, min_available=1
    ),
    "no nodes: does not fit": Case((role_requesting(),), (), False),
    "pods without requests, too few pods allowed per node: does not fit": Case(
        (replace(role_requesting("0"), replicas=3),), (replace(node(), free={"cpu": 0, "pods": 2}),), False
    ),
    "enough GPUs: fits": Case((role_requesting(gpus=1),), (node(gpus=3),), True),
    "one GPU too few: does not fit": Case((role_requesting(gpus=1),), (node(gpus=2), node("node-2")), False),
    "large pods fit only if placed first: fits": Case(
        (role_requesting("1", replicas=2), role_requesting("3", replicas=1, name="large")),
        (node(cpu=3), node("node-2", cpu=2)),
        True,
    ),
    "minimum reached with small pods only: fits": Case(
        (role_requesting("1", replicas=3), role_requesting("3", replicas=1, name="large")),
        (node(cpu=3),),
        True,
    ),
    "earlier pending pods take the capacity: does not fit": Case(
        (role_requesting(),), (node(cpu=4),), False, pending=(PodBatch(pod_requirements(template("1")), 2),)
    ),
    "earlier pending pods that fit on no node take none: fits": Case(
        (role_requesting(),), (node(cpu=4),), True, pending=(PodBatch(pod_requirements(template("64")), 2),)
    ),
    "node selector does not match: does not fit": Case(
        (role_requesting(nodeSelector={"zone": "a"}),), (node(), node("node-2", labels={"zone": "b"})), False
    ),
    "node selector matches: fits": Case(
        (role_requesting(nodeSelector={"zone": "a"}),), (node(labels={"zone": "a"}),), True
    ),
    "required affinity does not match: does not fit": Case(
        (role_requesting(affinity=AFFINITY),), (node(labels={"zone": "b"}),), False
    ),
    "taint: does not fit": Case((role_requesting(),), (node(taints=(TAINT,)),), False),
    "tolerated taint: fits": Case(
        (role_requesting(tolerations=[{"key": "dedicated", "operator": "Exists"}]),),
        (node(taints=(TAINT,)),),
        True,
    ),
    "cordoned node: does not fit": Case((role_requesting(),), (node(unschedulable=True),), False),
    "invalid quantity: fits, the API server rejects it": Case((role_requesting("many"),), (node(),), True),
    "invalid template: fits, the API server rejects it": Case(
        (replace(role_requesting(), template={"spec": {"containers": 3}}),), (node(),), True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_gang_fits_if_its_minimum_fits_at_once(case: Case) -> None:
    job = workload(*case.roles, gang=Gang(case.min_available))
    assert fits(job, Capacity(case.nodes, case.pending)) is case.want
