"""Tests for the sweep: which VMs are deleted because their object does not exist."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.capacity.provider import ObservedMachine, Presence, ZoneState
from argosy.capacity.sweep import MIN_AGE, find_orphans

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = ObservedMachine("vm", "RUNNING", Presence.RUNNING, uid="gone", cluster="here", created=NOW - MIN_AGE)

CASES: dict[str, tuple[ObservedMachine, bool]] = {
    "ours, old, without an object: deleted": (OLD, True),
    "its object exists: kept": (replace(OLD, uid="there"), False),
    "of another cluster: kept": (replace(OLD, cluster="elsewhere"), False),
    "without the label of a cluster: kept": (replace(OLD, cluster=""), False),
    "without the label of an object: kept": (replace(OLD, uid=""), False),
    "younger than ten minutes: kept": (replace(OLD, created=NOW - MIN_AGE + timedelta(seconds=1)), False),
    "of unknown age: kept": (replace(OLD, created=None), False),
}


@pytest.mark.parametrize(("machine", "want"), CASES.values(), ids=CASES.keys())
def test_which_vms_are_swept(machine: ObservedMachine, want: bool) -> None:
    found = find_orphans(ZoneState({"vm": machine}), {"there"}, "here", NOW)
    assert [each.name for each in found] == (["vm"] if want else [])


def test_a_cluster_that_does_not_know_itself_sweeps_nothing() -> None:
    assert find_orphans(ZoneState({"vm": replace(OLD, cluster="")}), set(), "", NOW) == ()
