"""What is done to the Node of a VM: labels, the announcement of its end, and its deletion."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.agent.notices.azure import AzureNotices
from argosy.agent.notices.base import Notice
from argosy.agent.notices.ec2 import Ec2Notices
from argosy.agent.notices.gce import GceNotices
from argosy.agent.notices.publisher import annotations_patch
from argosy.capacity.machine_record import MachineNotice, MachineRecord, MachineState
from argosy.dialects.spot.instance_nodes import node_actions
from argosy.kinds import labels, spot
from argosy.kinds.kubernetes import Node, NodeSpec
from argosy.kinds.labels import MACHINE_SOURCE
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot import INSTANCE_LABEL
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Patch
from tests.support.machine_simulator import START

END = START + timedelta(seconds=30, milliseconds=700)
END_TEXT = "2026-01-01T00:00:30Z"
BEFORE, AFTER = "2026-01-01T00:00:29Z", "2026-01-01T00:00:31Z"
TOLD = {spot.TERMINATION_DEADLINE: END_TEXT, spot.TERMINATION_SOURCE: MACHINE_SOURCE}
MARKED = {INSTANCE_LABEL: "vm-0"}
OBJECT = ProvisionedInstance(ObjectMeta("vm-0", "default", "uid-vm-0", creation_timestamp=START))
NOTICE = MachineNotice("operation", START, END, "Preempted")
RUNNING = MachineRecord(
    state=MachineState.READY, name="vm-0", node="vm-0", node_uid="node-1", notice=NOTICE, price="0.5"
)


def node(
    annotations: Mapping[str, str] = {},
    *,
    name: str = "vm-0",
    uid: str = "node-1",
    marks: Mapping[str, str] = MARKED,
    created: datetime = START,
    provider_id: str = "",
) -> Node:
    meta = ObjectMeta(name, uid=uid, resource_version="7", creation_timestamp=created)
    marked = replace(meta, labels=dict(marks), annotations=dict(annotations))
    return Node(marked, NodeSpec(provider_id=provider_id))


def announced(record: MachineRecord, seen: Node | None) -> object:
    """Return the annotations of an end that are written, or what else is done."""
    actions = list(node_actions(OBJECT, record, seen))
    if not actions:
        return {}
    [patch] = actions
    if not isinstance(patch, Patch):
        return patch
    assert seen is not None
    assert (patch.name, patch.uid) == (seen.metadata.name, seen.metadata.uid)
    metadata = patch.patch["metadata"]
    assert isinstance(metadata, dict)
    if metadata["annotations"]:
        assert metadata["resourceVersion"] == "7", "another one may be announced at this moment"
    return metadata["annotations"]


def noticed(**changes: object) -> MachineRecord:
    return replace(RUNNING, notice=replace(NOTICE, **changes))


def deadline(text: str, key: str = spot.TERMINATION_DEADLINE) -> dict[str, str]:
    return {key: text, spot.TERMINATION_SOURCE: "gce-preempted"}


CASES: dict[str, tuple[MachineRecord, Node | None, object]] = {
    "reported by the cloud: announced": (RUNNING, node(), TOLD),
    "of a Node with another name and the provider id of the VM: announced": (
        replace(RUNNING, node="10-0-0-7"),
        node(name="10-0-0-7", provider_id="gce://p/us-central1-a/vm-0"),
        TOLD,
    ),
    "the VM stops already: announced": (replace(RUNNING, state=MachineState.LOST), node(), TOLD),
    "the deadline is over: announced as it was": (
        noticed(deadline=START - timedelta(days=1)),
        node(),
        {**TOLD, spot.TERMINATION_DEADLINE: "2025-12-31T00:00:00Z"},
    ),
    "announced already: nothing": (RUNNING, node(TOLD), {}),
    "an agent has announced the same time: nothing": (RUNNING, node(deadline(END_TEXT)), {}),
    "an agent has announced an earlier end: nothing": (RUNNING, node(deadline(BEFORE)), {}),
    "somebody else has announced an earlier end: nothing": (
        RUNNING,
        node(deadline(BEFORE, labels.TERMINATION_DEADLINE)),
        {},
    ),
    "an agent has announced a later end: brought forward": (RUNNING, node(deadline(AFTER)), TOLD),
    "what is announced is no time: replaced": (RUNNING, node(deadline("soon")), TOLD),
    "no notice: nothing": (replace(RUNNING, notice=None), node(), {}),
    "only the Node announces it: nothing, it may be withdrawn there": (noticed(on_node=True), node(), {}),
    "the Node is gone: nothing": (RUNNING, None, {}),
    "another Node of the name: nothing": (RUNNING, node(uid="node-2"), {}),
    "a Node that is older than the object: nothing": (RUNNING, node(created=START - timedelta(hours=1)), {}),
    "a Node with the label of another VM: nothing": (RUNNING, node(marks={INSTANCE_LABEL: "vm-1"}), {}),
    "a Node with the provider id of another VM: nothing": (RUNNING, node(provider_id="gce://p/z/vm-1"), {}),
    "there is no VM any more: nothing": (replace(RUNNING, state=MachineState.DELETED), node(), {}),
    "a forged time before all calendars: the earliest": (
        noticed(deadline=datetime.fromisoformat("0001-01-01T00:00:00+14:00")),
        node(),
        {**TOLD, spot.TERMINATION_DEADLINE: "1970-01-01T00:00:00Z"},
    ),
    "a forged time after all calendars: the latest": (
        noticed(deadline=datetime.fromisoformat("9999-12-31T23:59:59-14:00")),
        node(),
        {**TOLD, spot.TERMINATION_DEADLINE: "9000-01-01T00:00:00Z"},
    ),
}


@pytest.mark.parametrize(("record", "seen", "want"), CASES.values(), ids=CASES.keys())
def test_end_of_a_vm_on_its_node(record: MachineRecord, seen: Node | None, want: object) -> None:
    assert announced(record, seen) == want


def test_node_that_joins_while_its_vm_ends_is_labelled_and_told_at_once() -> None:
    [patch] = node_actions(OBJECT, RUNNING, node(marks={}))
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"] == {
        "labels": MARKED,
        "annotations": {labels.HOURLY_PRICE: "0.5", **TOLD},
        "resourceVersion": "7",
    }


def test_node_agents_leave_what_is_announced_here_unless_they_know_an_earlier_end() -> None:
    for cloud in (GceNotices, Ec2Notices, AzureNotices):
        assert annotations_patch(TOLD, (), cloud.prefix) is None
        source = f"{cloud.prefix}preempted"
        later, sooner = (Notice(source, END + timedelta(seconds=each)) for each in (9, -9))
        assert annotations_patch(TOLD, (later,), cloud.prefix) is None
        patch = annotations_patch(TOLD, (sooner,), cloud.prefix)
        assert patch is not None
        assert patch[spot.TERMINATION_SOURCE] == source
