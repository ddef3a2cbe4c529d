"""Tests how the end of a node is read from its annotations, taints, conditions and cordon."""

import pytest

from argosy.kinds import labels, spot
from argosy.kinds.kubernetes import Node, NodeSpec, NodeStatus, Taint
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.workload.announcements import (
    DEFAULT_TAINTS,
    OUT_OF_SERVICE,
    Announcement,
    NoticeCause,
    NoticeRules,
    find_announcement,
    parse_taints,
)
from tests.support.workloads import later

AT_TEN_TEXT = "2030-01-01T12:00:10Z"
AT_TEN = {labels.TERMINATION_DEADLINE: AT_TEN_TEXT}
SHUTTING_DOWN = Condition(type="Ready", status="False", message="node is shutting down")


def node(
    *taints: str,
    annotations: dict[str, str] | None = None,
    condition: Condition | None = None,
    cordoned: bool = False,
) -> Node:
    spec = NodeSpec(cordoned, [Taint(key, "NoSchedule") for key in taints])
    conditions = [condition] if condition else []
    meta = ObjectMeta(name="n1", uid="u1", annotations=annotations or {})
    return Node(meta, spec, NodeStatus(conditions=conditions))


CASES: dict[str, tuple[Node, NoticeRules, tuple[str, str, int | None] | None]] = {
    "ready node without taints: nothing": (node(), NoticeRules(), None),
    "annotated deadline: preempted by then": (
        node(annotations=AT_TEN),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", 10),
    ),
    "annotated deadline and source: the source is named": (
        node(annotations={**AT_TEN, labels.TERMINATION_SOURCE: "rehearsal"}),
        NoticeRules(),
        ("Preempted", "rehearsal", 10),
    ),
    "deadline in another time zone: converted": (
        node(annotations={labels.TERMINATION_DEADLINE: "2030-01-01T14:00:10.5+02:00"}),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", 10),
    ),
    "deadline that is no time: preempted, deadline unknown": (
        node(annotations={labels.TERMINATION_DEADLINE: "soon", labels.TERMINATION_SOURCE: "handler"}),
        NoticeRules(),
        ("Preempted", "handler", None),
    ),
    "deadline in seconds since 1970: preempted, deadline unknown": (
        node(annotations={labels.TERMINATION_DEADLINE: "1893499210"}),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", None),
    ),
    "deadline without a zone: preempted, deadline unknown": (
        node(annotations={labels.TERMINATION_DEADLINE: "2030-01-01T12:00:10"}),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", None),
    ),
    "deadline that cannot be converted: preempted, deadline unknown": (
        node(annotations={labels.TERMINATION_DEADLINE: "0001-01-01T00:00:00+14:00"}),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", None),
    ),
    "empty deadline: preempted, deadline unknown": (
        node(annotations={spot.TERMINATION_DEADLINE: ""}),
        NoticeRules(),
        ("Preempted", "training.dcnlab.com/termination-deadline", None),
    ),
    "two deadlines of which one cannot be read: the other one": (
        node(annotations={labels.TERMINATION_DEADLINE: "soon", spot.TERMINATION_DEADLINE: AT_TEN_TEXT}),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", 10),
    ),
    "spot taint of AWS: preempted": (
        node("aws-node-termination-handler/spot-itn"),
        NoticeRules(),
        ("Preempted", "aws-node-termination-handler/spot-itn", None),
    ),
    "taint of Google: preempted": (
        node("cloud.google.com/impending-node-termination"),
        NoticeRules(),
        ("Preempted", "cloud.google.com/impending-node-termination", None),
    ),
    "every spot node of Azure has its priority as a taint: nothing": (
        node("kubernetes.azure.com/scalesetpriority"),
        NoticeRules(),
        None,
    ),
    "node that the autoscaler deletes: drained": (
        node("ToBeDeletedByClusterAutoscaler"),
        NoticeRules(),
        ("Drained", "ToBeDeletedByClusterAutoscaler", None),
    ),
    "node that the autoscaler considers: a hint": (
        node("DeletionCandidateOfClusterAutoscaler"),
        NoticeRules(),
        ("Candidate", "DeletionCandidateOfClusterAutoscaler", None),
    ),
    "considered and then deleted: the certain one": (
        node("DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"),
        NoticeRules(),
        ("Drained", "ToBeDeletedByClusterAutoscaler", None),
    ),
    "taint and annotated deadline: the more urgent cause with the deadline": (
        node("ToBeDeletedByClusterAutoscaler", annotations=AT_TEN),
        NoticeRules(),
        ("Preempted", "argosy.dev/termination-deadline", 10),
    ),
    "out of service: known whatever is configured": (
        node(OUT_OF_SERVICE),
        NoticeRules({}),
        ("OutOfService", OUT_OF_SERVICE, None),
    ),
    "kubelet shuts down: by its condition Ready": (
        node(condition=SHUTTING_DOWN),
        NoticeRules(),
        ("Shutdown", "kubelet", None),
    ),
    "cordon, which is no notice by default: nothing": (node(cordoned=True), NoticeRules(), None),
    "cordon, switched on: drained": (
        node(cordoned=True),
        NoticeRules(cordon=True),
        ("Drained", "cordon", None),
    ),
    "taint that is not configured: nothing": (node("example.org/going"), NoticeRules(), None),
    "taint that is configured: its cause": (
        node("example.org/going"),
        NoticeRules(parse_taints("example.org/going=Maintenance")),
        ("Maintenance", "example.org/going", None),
    ),
}


@pytest.mark.parametrize(("announced", "rules", "want"), CASES.values(), ids=CASES.keys())
def test_announced_end_of_a_node(
    announced: Node, rules: NoticeRules, want: tuple[str, str, int | None] | None
) -> None:
    found = find_announcement(announced, rules)
    if want is None:
        assert found is None
        return
    cause, source, seconds = want
    deadline = None if seconds is None else later(seconds)
    assert found == Announcement("n1", "u1", NoticeCause(cause), source, deadline)


def test_source_is_short_and_printable() -> None:
    written = {**AT_TEN, labels.TERMINATION_SOURCE: "a\x1b\n" * 1000}
    found = find_announcement(node(annotations=written), NoticeRules())
    assert found is not None
    assert found.source == "a" * 63


def test_default_taints_can_be_written_and_read() -> None:
    text = ",".join(f"{key}={cause}" for key, cause in DEFAULT_TAINTS.items())
    assert parse_taints(text) == dict(DEFAULT_TAINTS)
    assert parse_taints("") == {}


@pytest.mark.parametrize("text", ["spot", "=Drained", "spot=Soon", "spot=OutOfService", "a=Drained,b"])
def test_taint_without_a_known_cause_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be KEY=CAUSE, with a cause of Preempted, Shutdown"):
        parse_taints(text)
