"""Tests that jobs which AresOperator started continue from their stored status."""

import msgspec
import pytest
from msgspec.structs import replace

from argosy.dialects.ares.adoption import adopted_record, adopted_replica
from argosy.kinds.aresjob import AresJob, AresJobStatus
from argosy.workload.observed import Observed
from tests.support.aresjobs import job, simulate
from tests.support.workloads import pod, pods

AT = "2029-12-31T12:00:00Z"


def left(phase: str, *conditions: dict[str, str], role: str = "", **status: object) -> AresJob:
    """Return a job of two workers with this status, as AresOperator stored it."""
    stored = [{"status": "True", "lastTransitionTime": AT, **condition} for condition in conditions]
    roles = {"worker": {"phase": role or phase, "lastTransitionTime": AT}}
    written = {"phase": phase, "conditions": stored, "roleStatuses": roles, **status}
    return replace(job(roles={"worker": {"replicas": 2}}), status=msgspec.convert(written, AresJobStatus))


def test_adopted_running_job_continues() -> None:
    begun = simulate(left("Running", {"type": "Running", "reason": "Running"}, runningTime=AT))
    first = begun.reconcile(*pods("RR"))
    assert (first.phase, first.created, first.deleted) == ("Running", [], [])
    assert (first.role().phase, first.role().active, first.role().replicas) == ("Running", 2, 2)
    assert first.status.start_time == pod(0).created, "AresOperator wrote none"
    assert not first.events
    assert first.reconcile(*pods("SS")).phase == "Succeeded"


def test_pod_lost_before_adoption_is_missing() -> None:
    lost = simulate(left("Running", runningTime=AT)).reconcile_observed(
        Observed(pods=pods("R"), confirmed_absent=frozenset({("worker", 1)}))
    )
    assert (lost.phase, lost.role().reason, lost.created) == ("Failed", "PodMissing", [])


def test_adopted_starting_job_gets_its_missing_pods() -> None:
    starting = simulate(left("Starting")).reconcile(*pods("P"))
    assert (starting.phase, starting.created) == ("Starting", ["worker-1"])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_adopted_finished_job_does_not_run_again(phase: str) -> None:
    ended = left(phase, {"type": phase, "reason": phase}, completionTime=AT)
    first = simulate(ended).reconcile()
    assert (first.phase, first.created, first.events, first.obj.spec) == (phase, [], (), ended.spec)
    assert first.status.role_statuses == ended.status.role_statuses
    old = replace(ended, spec={**ended.spec, "runPolicy": {"ttlSecondsAfterFinished": 30}})
    over = simulate(old).reconcile()
    assert [action.__class__.__name__ for action in over.actions] == ["DeleteJob"], "its time to live counts"


def test_adopted_invalid_job_stays_invalid_until_it_is_edited() -> None:
    why = {"type": "Failed", "reason": "InvalidDefinition", "message": "no port"}
    refused = simulate(left("Failed", why)).reconcile()
    assert (refused.phase, refused.condition("Failed")[2], refused.created) == ("Failed", "no port", [])
    cured = refused.with_spec(roleSpecs={"worker": {"replicas": 1}}).reconcile()
    assert (cured.phase, cured.condition("Failed")[:2]) == ("Pending", ("False", "DefinitionChanged"))


def test_own_or_empty_status_is_not_adopted() -> None:
    assert adopted_record(job()) is None
    assert adopted_record(simulate(job()).reconcile().obj) is None


PLACES = {
    "labels of this API: used": (
        {"ares.io/replica-type": "ps", "ares.io/replica-index": "3"},
        ("ps", 3),
    ),
    "labels of early AresOperator versions: used": (
        {"replica-type": "ps", "replica-index": "3"},
        ("ps", 3),
    ),
    "index is not a number: no replica": ({"replica-type": "ps", "replica-index": "x"}, None),
    "index missing: no replica": ({"replica-type": "ps"}, None),
    "no labels: no replica": ({}, None),
}


@pytest.mark.parametrize(("labels", "want"), PLACES.values(), ids=PLACES.keys())
def test_replica_of_an_adopted_pod(labels: dict[str, str], want: tuple[str, int] | None) -> None:
    assert adopted_replica(labels) == want
