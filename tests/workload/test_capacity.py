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
    "all on one node": Case((asking(),), (node(cpu=3),), True),
    "room for two of three": Case((asking(),), (node(cpu=2),), False),
    "room for two of which two are enough": Case((asking(),), (node(cpu=2),), True, least=2),
    "room on two nodes together": Case((asking(),), (node(cpu=2), node("node-2", cpu=1)), True),
    "halves of two nodes make no whole": Case(
        (asking("2", replicas=1),), (node(cpu=1), node("node-2", cpu=1)), False, least=1
    ),
    "no nodes": Case((asking(),), (), False),
    "what asks for nothing still needs a place": Case(
        (replace(asking("0"), replicas=3),), (replace(node(), free={"cpu": 0, "pods": 2}),), False
    ),
    "GPUs": Case((asking(gpus=1),), (node(gpus=3),), True),
    "a GPU too few": Case((asking(gpus=1),), (node(gpus=2), node("node-2")), False),
    "the bulky are placed first": Case(
        (asking("1", replicas=2), asking("3", replicas=1, name="large")),
        (node(cpu=3), node("node-2", cpu=2)),
        True,
    ),
    "few bulky ones do not keep many small ones out": Case(
        (asking("1", replicas=3), asking("3", replicas=1, name="large")), (node(cpu=3),), True
    ),
    "pods without a node come first": Case(
        (asking(),), (node(cpu=4),), False, ahead=(PodBatch(pod_requirements(template("1")), 2),)
    ),
    "pods that fit nowhere take no room": Case(
        (asking(),), (node(cpu=4),), True, ahead=(PodBatch(pod_requirements(template("64")), 2),)
    ),
    "a node selector": Case(
        (asking(nodeSelector={"zone": "a"}),), (node(), node("node-2", labels={"zone": "b"})), False
    ),
    "a node selector that is satisfied": Case(
        (asking(nodeSelector={"zone": "a"}),), (node(labels={"zone": "a"}),), True
    ),
    "required affinity": Case((asking(affinity=AFFINITY),), (node(labels={"zone": "b"}),), False),
    "a taint": Case((asking(),), (node(taints=(TAINT,)),), False),
    "a taint that is tolerated": Case(
        (asking(tolerations=[{"key": "dedicated", "operator": "Exists"}]),), (node(taints=(TAINT,)),), True
    ),
    "a node that is cordoned off": Case((asking(),), (node(unschedulable=True),), False),
    "a quantity that is none is the API server's to refuse": Case((asking("many"),), (node(),), True),
    "a template that is none is the API server's to refuse": Case(
        (replace(asking(), template={"spec": {"containers": 3}}),), (node(),), True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_fits(case: Case) -> None:
    job = workload(*case.roles, gang=Gang(case.least))
    assert fits(job, Capacity(case.nodes, case.ahead)) is case.want
