"""What `argosy nodes` shows of a node, and its commands."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from click.testing import CliRunner

from argosy.cli.group import cli
from argosy.cli.nodes import node_row
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import TERMINATION_DEADLINE, TERMINATION_SOURCE
from argosy.local.node_set import NodeEntry

SOON = datetime.now(UTC) + timedelta(days=3, hours=2, minutes=30)
"""Shown as `3 d 2 h`, however long the test takes."""


def node(ready: str = "True", unschedulable: bool = False, marks: dict[str, str] | None = None) -> Node:
    fields = {
        "metadata": {"name": "a", "annotations": marks or {}},
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(fields, Node)


ANNOUNCED = {TERMINATION_DEADLINE: SOON.isoformat(), TERMINATION_SOURCE: "rehearsal"}
ROWS: dict[str, tuple[NodeEntry, Node | None, str, str]] = {
    "running node: Ready": (NodeEntry("a"), node(), "Ready", ""),
    "cordoned node: as kubectl prints it": (
        NodeEntry("a"),
        node(unschedulable=True),
        "Ready,SchedulingDisabled",
        "",
    ),
    "silenced node: NotReady when its Node is": (
        NodeEntry("a", state="Silenced"),
        node("Unknown"),
        "NotReady",
        "silenced",
    ),
    "stopped node that returns: when": (
        NodeEntry("a", state="Stopped", back_at=SOON),
        node("Unknown"),
        "NotReady",
        "stopped, back in 3 d 2 h",
    ),
    "reclaimed node without an object: Reclaimed": (
        NodeEntry("a", state="Reclaimed", back_at=SOON),
        None,
        "Reclaimed",
        "reclaimed, back in 3 d 2 h",
    ),
    "node that is not registered yet: NotReady": (NodeEntry("a"), None, "NotReady", ""),
    "announced node: when it ends and who says so": (
        NodeEntry("a"),
        node(marks=ANNOUNCED),
        "Ready",
        "ends in 3 d 2 h (rehearsal)",
    ),
    "silenced and announced node: both": (
        NodeEntry("a", state="Silenced"),
        node(marks=ANNOUNCED),
        "Ready",
        "silenced, ends in 3 d 2 h (rehearsal)",
    ),
    "announced by someone who gives no valid time: as it is written": (
        NodeEntry("a"),
        node(marks={TERMINATION_DEADLINE: "soon"}),
        "Ready",
        "ends at soon (unknown source)",
    ),
}


@pytest.mark.parametrize(("entry", "present", "status", "notice"), ROWS.values(), ids=ROWS.keys())
def test_a_node_is_shown_with_its_status_and_what_was_done_to_it(
    entry: NodeEntry, present: Node | None, status: str, notice: str
) -> None:
    row = node_row(entry, present, 2)
    assert (row.name, row.status, row.pods, row.notice) == ("a", status, 2, notice)


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(cli, ["nodes", "--help"])
    for command in ("add", "cordon", "remove", "resume", "silence", "uncordon"):
        assert f"\n  {command} " in result.output


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli, ["nodes", "cordn", "node-1"])
    assert result.exit_code == 2
    assert 'unknown command "cordn"; did you mean `argosy nodes cordon`?' in result.output
