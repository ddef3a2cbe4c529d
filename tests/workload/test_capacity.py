from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Taint
from argosy.workload.capacity import Capacity, FreeNode, PodBatch, fits, pod_requirements
from argosy.workload.model import Gang, Json, Role
from tests.support.workloads import role, workload

TAINT = Taint("dedicated", "NoSchedule", "research")


def node(name: str = "node-1", cpu: int = 4, **more: object) -> FreeNode:
    gpus = cast("int", more.pop("gpus", 0))
    free = {"cpu": cpu * 1000, "memory": 2**33, "pods": 110, "nvidia.com/gpu": gpus}
    return replace(FreeNode(name, free), **more)


def asking(cpu: str = "1", gpus: int = 0, replicas: int = 3, name: str = "worker", **spec: object) -> Role:
    requests: dict[str, object] = {"cpu": cpu, **({"nvidia.com/gpu": gpus} if gpus else {})}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return replace(role(name, replicas), template={"spec": {"containers": containers, **spec}})


def template(cpu: str) -> Json:
    return asking(cpu).template


class Case(Struct):
    roles: tuple[Role, ...]
    nodes: tuple[FreeNode, ...]
    want: bool
    least: int = 3
    ahead: tuple[PodBatch, ...] = ()


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}

CASES = {
    "all pods fit on one node: fits": Case((asking(),), (node(cpu=3),), True),
    "two of three pods fit: does not fit": Case((asking(),), (node(cpu=2),), False),
    "two of three pods fit, two are enough: fits": Case((asking(),), (node(cpu=2),), True, least=2),
    "pods fit on two nodes together: fits": Case((asking(),), (node(cpu=2), node("node-2", cpu=1)), True),
    "halves of a pod fit on two nodes: does not fit": Case(
        (asking("2", replicas=1),), (node(cpu=1), node("node-2", cpu=1)), False, least=1
    ),
    "no nodes: does not fit": Case((asking(),), (), False),
    "pods without requests, too few pods allowed per node: does not fit": Case(
        (replace(asking("0"), replicas=3),), (replace(node(), free={"cpu": 0, "pods": 2}),), False
    ),
    "enough GPUs: fits": Case((asking(gpus=1),), (node(gpus=3),), True),
    "one GPU too few: does not fit": Case((asking(gpus=1),), (node(gpus=2), node("node-2")), False),
    "large pods fit only if placed first: fits": Case(
        (asking("1", replicas=2), asking("3", replicas=1, name="large")),
        (node(cpu=3), node("node-2", cpu=2)),
        True,
    ),
    "small pods fit only if placed first: fits": Case(
        (asking("1", replicas=3), asking("3", replicas=1, name="large")), (node(cpu=3),), True
    ),
    "pending pods need the capacity: does not fit": Case(
        (asking(),), (node(cpu=4),), False, ahead=(PodBatch(pod_requirements(template("1")), 2),)
    ),
    "pending pods that fit nowhere: fits": Case(
        (asking(),), (node(cpu=4),), True, ahead=(PodBatch(pod_requirements(template("64")), 2),)
    ),
    "node selector does not match: does not fit": Case(
        (asking(nodeSelector={"zone": "a"}),), (node(), node("node-2", labels={"zone": "b"})), False
    ),
    "node selector matches: fits": Case(
        (asking(nodeSelector={"zone": "a"}),), (node(labels={"zone": "a"}),), True
    ),
    "required affinity does not match: does not fit": Case(
        (asking(affinity=AFFINITY),), (node(labels={"zone": "b"}),), False
    ),
    "taint: does not fit": Case((asking(),), (node(taints=(TAINT,)),), False),
    "tolerated taint: fits": Case(
        (asking(tolerations=[{"key": "dedicated", "operator": "Exists"}]),), (node(taints=(TAINT,)),), True
    ),
    "cordoned node: does not fit": Case((asking(),), (node(unschedulable=True),), False),
    "invalid quantity: fits, the API server rejects it": Case((asking("many"),), (node(),), True),
    "invalid template: fits, the API server rejects it": Case(
        (replace(asking(), template={"spec": {"containers": 3}}),), (node(),), True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_gang_fits_if_its_minimum_fits_at_once(case: Case) -> None:
    job = workload(*case.roles, gang=Gang(case.least))
    assert fits(job, Capacity(case.nodes, case.ahead)) is case.want
