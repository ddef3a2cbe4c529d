"""Tests which nodes are suspected of killing pods."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.meta import ObjectMeta
from argosy.workload.observed import ObservedPod
from argosy.workload.quarantine import (
    NO_QUARANTINE,
    NodeFailure,
    NodeQuarantine,
    QuarantineRules,
    failure_on_node,
    find_suspects,
    max_quarantined,
    parse_rules,
    plan_quarantines,
    quarantine_annotations,
    read_quarantine,
)
from tests.support.workloads import NOW, later, pod, workload

RULES = QuarantineRules(enabled=True)


def failed(
    node: str,
    index: int,
    code: int | None = 139,
    job: str = "a",
    at: float = 0,
    times: int = 1,
    namespace: str = "team",
) -> list[NodeFailure]:
    return [
        NodeFailure(node, namespace, job, "worker", index, f"{job}-{index}-{at}-{number}", code, later(at))
        for number in range(times)
    ]


CASES: dict[str, tuple[Sequence[NodeFailure], list[str]]] = {
    "three failures of two replicas on one node: suspected": (
        [*failed("n1", 0, times=2), *failed("n1", 1)],
        ["n1"],
    ),
    "two failures: too few": ([*failed("n1", 0), *failed("n1", 1)], []),
    "three failures of one replica: it may be the replica": (failed("n1", 0, times=3), []),
    "replicas of several jobs: suspected": (
        [*failed("n1", 0, job="a"), *failed("n1", 0, job="b"), *failed("n1", 0, job="c")],
        ["n1"],
    ),
    "failures outside the window: forgotten": (
        [*failed("n1", 0, at=-1000, times=2), *failed("n1", 1, at=-601)],
        [],
    ),
    "same exit code on another node: it is the program": (
        [*failed("n1", 0, times=2), *failed("n1", 1), *failed("n2", 2)],
        [],
    ),
    "other exit code on another node: suspected": (
        [*failed("n1", 0, times=2), *failed("n1", 1), *failed("n2", 2, code=1)],
        ["n1"],
    ),
    "same exit code of another job on another node: suspected": (
        [*failed("n1", 0, times=2), *failed("n1", 1), *failed("n2", 2, job="b")],
        ["n1"],
    ),
    "no exit codes: suspected": ([*failed("n1", 0, code=None, times=2), *failed("n1", 1, code=None)], ["n1"]),
    "too few failures in each of two namespaces: not suspected": (
        [*failed("n1", 0, job="a", times=2), *failed("n1", 0, job="b", namespace="other", times=2)],
        [],
    ),
    "the same pod reported twice: counted once": ([*failed("n1", 0), *failed("n1", 1), *failed("n1", 1)], []),
}


@pytest.mark.parametrize(("failures", "want"), CASES.values(), ids=CASES.keys())
def test_nodes_on_which_pods_fail_are_suspected(failures: Sequence[NodeFailure], want: list[str]) -> None:
    assert list(find_suspects(failures, RULES, NOW)) == want


def test_reason_has_the_numbers() -> None:
    found = find_suspects([*failed("n1", 0, times=2), *failed("n1", 1)], RULES, NOW)
    assert found == {"n1": {"team": "3 pods of 2 replicas failed there, and nowhere else, within 600 s"}}


END = later(3600)
ONE = {"n1": {"a": "why"}}
BOTH = {"n1": {"a": "why", "b": "why"}}
Planned = dict[str, NodeQuarantine]


def quarantine(*namespaces: str, until: datetime = END) -> NodeQuarantine:
    return NodeQuarantine(until, frozenset(namespaces))


PLANS: dict[str, tuple[Mapping[str, Mapping[str, str]], Planned, int, Planned]] = {
    "failures in one namespace: only its pods avoid the node": (ONE, {}, 10, {"n1": quarantine("a")}),
    "failures in two namespaces: all pods avoid the node": (BOTH, {}, 10, {"n1": quarantine()}),
    "failures in a second namespace while it is in quarantine for a first: all pods avoid it": (
        ONE,
        {"n1": quarantine("b", until=later(60))},
        10,
        {"n1": quarantine()},
    ),
    "in quarantine for this namespace already: nothing": (ONE, {"n1": quarantine("a")}, 10, {}),
    "in quarantine for all already: nothing": (BOTH, {"n1": quarantine()}, 10, {}),
    "earlier quarantine is over: begins again": (
        ONE,
        {"n1": quarantine("b", until=NOW)},
        10,
        {"n1": quarantine("a")},
    ),
    "one namespace fails on every node: one node of ten at a time": (
        {f"n{number}": {"a": "why"} for number in range(10)},
        {},
        10,
        {"n0": quarantine("a")},
    ),
    "two namespaces fail on every node: one node of ten at a time, for them and for all": (
        {f"n{number}": {"a": "why", "b": "why"} for number in range(10)},
        {},
        10,
        {"n0": quarantine()},
    ),
    "share of another namespace is used up: no matter": (
        {"n2": {"a": "why"}},
        {"n1": quarantine("b")},
        10,
        {"n2": quarantine("a")},
    ),
    "only one node: never in quarantine": (BOTH, {}, 1, {}),
}


@pytest.mark.parametrize(("suspects", "current", "nodes", "want"), PLANS.values(), ids=PLANS.keys())
def test_quarantine_concerns_those_on_whose_failures_it_is_based(
    suspects: Mapping[str, Mapping[str, str]], current: Planned, nodes: int, want: Planned
) -> None:
    assert plan_quarantines(suspects, current, nodes, RULES, NOW) == want


def test_one_namespace_is_enough_where_the_rules_say_so() -> None:
    rules = replace(RULES, namespaces=1)
    assert plan_quarantines(ONE, {}, 10, rules, NOW) == {"n1": quarantine()}


FAILED = pod(1, "Failed", exit_code=139, node="n1")
EVIDENCE: dict[str, tuple[ObservedPod, bool]] = {
    "killed by a signal: may be the node": (FAILED, True),
    "failed without an exit code: may be the node": (replace(FAILED, exit_code=None), True),
    "evicted: not the node's doing": (replace(FAILED, disrupted=True), False),
    "exceeded its own storage limit: not the node's doing": (replace(FAILED, over_limit=True), False),
    "exceeded its own memory limit: not the node's doing": (replace(FAILED, out_of_memory=True), False),
    "never had a node: nobody's doing": (replace(FAILED, node=""), False),
    "runs: nothing": (replace(FAILED, phase="Running"), False),
}


@pytest.mark.parametrize(("ended", "want"), EVIDENCE.values(), ids=EVIDENCE.keys())
def test_what_counts_as_evidence(ended: ObservedPod, want: bool) -> None:
    assert (failure_on_node(workload(), ended, NOW) is not None) is want


SHARES = {0: 0, 1: 0, 2: 1, 9: 1, 20: 2, 100: 10}


@pytest.mark.parametrize(("nodes", "want"), SHARES.items())
def test_most_nodes_are_never_in_quarantine(nodes: int, want: int) -> None:
    assert max_quarantined(nodes, RULES) == want


PARSED = {
    "off": QuarantineRules(),
    "on": QuarantineRules(enabled=True),
    "failures=5,replicas=1,namespaces=3,window=5m,duration=2h,maxPercent=20": QuarantineRules(
        True, 5, 1, 3, 300, 7200, 20
    ),
}


@pytest.mark.parametrize(("text", "want"), PARSED.items())
def test_rules_are_read(text: str, want: QuarantineRules) -> None:
    assert parse_rules(text) == want


INVALID = {
    "maybe": 'unknown rule "maybe": must be on, off, or some of'
    " failures, replicas, namespaces, maxPercent, window, duration",
    "failures=0": 'invalid value "failures=0": must be between 1 and 1000',
    "failures=x": 'invalid value "failures=x": must be between 1 and 1000',
    "maxPercent=51": 'invalid value "maxPercent=51": must be between 1 and 50',
    "window=40d": 'invalid value "window=40d": must be between 1 and 2592000',
    "window=soon": "invalid duration 'soon': must be a number with a unit, like 90s, 10m or 1h30m",
}


@pytest.mark.parametrize(("text", "want"), INVALID.items())
def test_invalid_rules_are_rejected(text: str, want: str) -> None:
    with pytest.raises(ValueError, match=re.escape(want)):
        parse_rules(text)


UNTIL: dict[str, datetime | None] = {
    "2030-01-01T12:00:00Z": NOW,
    "2030-01-01T13:00:00+01:00": NOW,
    "2030-01-01T12:00:00": None,
    "soon": None,
    "": None,
}


@pytest.mark.parametrize(("text", "want"), UNTIL.items())
def test_end_of_a_quarantine_is_read_from_the_node(text: str, want: datetime | None) -> None:
    node = Node(ObjectMeta(annotations={labels.QUARANTINE_UNTIL: text}))
    found = read_quarantine(node)
    assert found == (NodeQuarantine(want) if want else None)
    assert found is None or found.until.tzinfo == UTC


SHOWN = {"for all namespaces": quarantine(), "for two namespaces": quarantine("a", "b")}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN.keys())
def test_annotations_show_the_quarantine_and_who_began_it(shown: NodeQuarantine) -> None:
    patch = quarantine_annotations(shown, "why")
    assert set(patch) == set(NO_QUARANTINE)
    annotations = {key: value for key, value in patch.items() if value is not None}
    assert annotations[labels.QUARANTINE_SOURCE] == "argosy"
    assert read_quarantine(Node(ObjectMeta(annotations=annotations))) == shown
