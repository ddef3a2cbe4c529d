"""Tests for the webhooks of AresJobs, which report the same problems as a reconcile."""

from datetime import UTC, datetime

import pytest
from msgspec import Struct

from argosy.dialects.ares.admission import Meta, SubmittedJob, default_patch, problems
from argosy.workload.model import Problems
from tests.support.aresjobs import DIALECT, job

GOOD, BAD = job(roles={"worker": {}}).spec, job(roles={"worker": {"replicas": 0}}).spec
NAMED = Meta(name="job")


class Case(Struct):
    written: SubmittedJob
    refused: bool
    old: SubmittedJob | None = None


CASES = {
    "valid job created: stored": Case(SubmittedJob(NAMED, GOOD), refused=False),
    "invalid job created: rejected": Case(SubmittedJob(NAMED, BAD), refused=True),
    "edit that makes a job invalid: rejected": Case(
        SubmittedJob(NAMED, BAD), refused=True, old=SubmittedJob(NAMED, GOOD)
    ),
    "edit that does not change an invalid spec: stored": Case(
        SubmittedJob(NAMED, BAD), refused=False, old=SubmittedJob(NAMED, BAD)
    ),
    "edit that makes an invalid job valid: stored": Case(
        SubmittedJob(NAMED, GOOD), refused=False, old=SubmittedJob(NAMED, BAD)
    ),
    "invalid job that is being deleted: stored": Case(
        SubmittedJob(Meta("job", deletion_timestamp=datetime.now(UTC)), BAD), refused=False
    ),
    "generateName too long with its suffix: rejected": Case(
        SubmittedJob(Meta(generate_name="j" * 51), GOOD), refused=True
    ),
    "generateName that fits with its suffix: stored": Case(
        SubmittedJob(Meta(generate_name="j" * 49), GOOD), refused=False
    ),
    "no spec: rejected": Case(SubmittedJob(NAMED), refused=True),
    "spec is a text: rejected": Case(SubmittedJob(NAMED, "text"), refused=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rejected_jobs(case: Case) -> None:
    assert (problems(case.written, case.old) is not None) is case.refused


def test_rejection_has_the_message_of_a_reconcile() -> None:
    reported = problems(SubmittedJob(NAMED, BAD))
    result = DIALECT.to_workload(job(roles={"worker": {"replicas": 0}}))
    assert isinstance(result, Problems)
    assert str(reported) == str(result)


def test_defaults_equal_those_of_a_reconcile() -> None:
    patch = {
        str(operation["path"]): operation["value"] for operation in default_patch(SubmittedJob(NAMED, GOOD))
    }
    assert {operation["op"] for operation in default_patch(SubmittedJob(NAMED, GOOD))} == {"add"}
    assert patch["/spec/runPolicy"] == {"cleanPodPolicy": "None"}
    assert patch["/spec/roleSpecs/worker/restartPolicy"] == "Never"
    assert patch["/spec/jobPhasePolicy"] == {"failed": [["worker"]], "succeeded": [["worker"]]}


def test_invalid_spec_is_not_defaulted() -> None:
    assert default_patch(SubmittedJob(NAMED, BAD)) == []
