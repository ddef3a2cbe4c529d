"""What webhooks answer about AresJobs: what a pass would say, and nothing to those who only tidy up."""

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
    "a job that is right is stored": Case(SubmittedJob(NAMED, GOOD), refused=False),
    "one that is wrong is not": Case(SubmittedJob(NAMED, BAD), refused=True),
    "an edit that makes it wrong is refused": Case(
        SubmittedJob(NAMED, BAD), refused=True, old=SubmittedJob(NAMED, GOOD)
    ),
    "an edit that leaves what is wrong as it was is not looked at": Case(
        SubmittedJob(NAMED, BAD), refused=False, old=SubmittedJob(NAMED, BAD)
    ),
    "an edit that cures it is stored": Case(
        SubmittedJob(NAMED, GOOD), refused=False, old=SubmittedJob(NAMED, BAD)
    ),
    "what is being deleted is let go": Case(
        SubmittedJob(Meta("job", deletion_timestamp=datetime.now(UTC)), BAD), refused=False
    ),
    "a name that will be made is counted with what is added to it": Case(
        SubmittedJob(Meta(generate_name="j" * 51), GOOD), refused=True
    ),
    "a shorter one is fine": Case(SubmittedJob(Meta(generate_name="j" * 49), GOOD), refused=False),
    "no spec at all": Case(SubmittedJob(NAMED), refused=True),
    "a spec that is none": Case(SubmittedJob(NAMED, "text"), refused=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_refused(case: Case) -> None:
    assert (problems(case.written, case.old) is not None) is case.refused


def test_the_message_is_that_of_a_pass() -> None:
    found = problems(SubmittedJob(NAMED, BAD))
    result = DIALECT.to_workload(job(roles={"worker": {"replicas": 0}}))
    assert isinstance(result, Problems)
    assert str(found) == str(result)


def test_defaults_are_those_that_a_pass_would_write() -> None:
    patch = {str(one["path"]): one["value"] for one in default_patch(SubmittedJob(NAMED, GOOD))}
    assert {one["op"] for one in default_patch(SubmittedJob(NAMED, GOOD))} == {"add"}
    assert patch["/spec/runPolicy"] == {"cleanPodPolicy": "None"}
    assert patch["/spec/roleSpecs/worker/restartPolicy"] == "Never"
    assert patch["/spec/jobPhasePolicy"] == {"failed": [["worker"]], "succeeded": [["worker"]]}


def test_a_wrong_spec_is_never_changed() -> None:
    assert default_patch(SubmittedJob(NAMED, BAD)) == []
