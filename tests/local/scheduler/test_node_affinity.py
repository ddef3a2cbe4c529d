"""Tests for node selection by labels, taints and ports."""

import msgspec
import pytest

from argosy.kinds.node_matching import Toleration, tolerates
from argosy.local.controllers.api_types import LabelSelector, Taint
from argosy.local.scheduler.node_affinity import matches_node, ports_conflict, selects
from tests.support.scheduler_objects import Json, pod

LABELS = {"zone": "a", "gpus": "8"}

NODES: dict[str, tuple[Json, bool]] = {
    "no constraint: matches": ({}, True),
    "nodeSelector with the node's label: matches": ({"nodeSelector": {"zone": "a"}}, True),
    "nodeSelector with another value: does not match": ({"nodeSelector": {"zone": "b"}}, False),
}


def _required(*terms: Json) -> Json:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def _label(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NODES |= {
    "In with the label's value: matches": (_required(_label("zone", "In", "a", "b")), True),
    "NotIn with the label's value: does not match": (_required(_label("zone", "NotIn", "a")), False),
    "NotIn without the label: matches": (_required(_label("rack", "NotIn", "a")), True),
    "Exists with the label: matches": (_required(_label("zone", "Exists")), True),
    "DoesNotExist with the label: does not match": (_required(_label("zone", "DoesNotExist")), False),
    "Gt with a smaller value: matches": (_required(_label("gpus", "Gt", "4")), True),
    "Lt with a smaller value: does not match": (_required(_label("gpus", "Lt", "4")), False),
    "Gt with a label that is not a number: does not match": (_required(_label("zone", "Gt", "4")), False),
    "one of two terms matches: matches": (
        _required(_label("zone", "In", "b"), _label("gpus", "Exists")),
        True,
    ),
    "empty term: does not match": (_required({}), False),
    "matchFields with the node's name: matches": (
        _required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
        True,
    ),
    "affinity matches, nodeSelector does not: does not match": (
        {"nodeSelector": {"zone": "b"}, **_required(_label("zone", "Exists"))},
        False,
    ),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES)
def test_matches_node(case: tuple[Json, bool]) -> None:
    spec, want = case
    assert matches_node(pod("p", spec=spec), "n1", LABELS) is want


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")
TOLERATIONS = {
    "same key and value: tolerated": (Toleration(key="gpu", value="yes"), True),
    "another value: not tolerated": (Toleration(key="gpu", value="no"), False),
    "key with Exists: tolerated": (Toleration(key="gpu", operator="Exists"), True),
    "Exists without a key: tolerated": (Toleration(operator="Exists"), True),
    "another effect: not tolerated": (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
    "neither key nor Exists: not tolerated": (Toleration(value="yes"), False),
}


@pytest.mark.parametrize("case", TOLERATIONS.values(), ids=TOLERATIONS)
def test_tolerations(case: tuple[Toleration, bool]) -> None:
    toleration, want = case
    assert tolerates(toleration, TAINT) is want


def test_a_missing_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selects(None, {"a": "b"})
    assert selects(LabelSelector(), {"a": "b"})
    assert not selects(msgspec.convert({"matchLabels": {"a": "c"}}, LabelSelector), {"a": "b"})


PORTS = {
    "same port: conflict": (("TCP", 80, "0.0.0.0"), True),
    "another protocol: no conflict": (("UDP", 80, "0.0.0.0"), False),
    "one address and all addresses: conflict": (("TCP", 80, "10.0.0.1"), True),
    "another port: no conflict": (("TCP", 81, "0.0.0.0"), False),
}


@pytest.mark.parametrize("case", PORTS.values(), ids=PORTS)
def test_host_port_conflicts(case: tuple[tuple[str, int, str], bool]) -> None:
    wanted, want = case
    assert ports_conflict([wanted], [("TCP", 80, "0.0.0.0")]) is want


def test_different_addresses_may_use_the_same_host_port() -> None:
    assert not ports_conflict([("TCP", 80, "10.0.0.1")], [("TCP", 80, "10.0.0.2")])
