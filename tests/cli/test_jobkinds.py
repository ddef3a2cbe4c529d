"""Jobs of every kind are summarized in the same form."""

import msgspec
import pytest

from argosy.cli.jobkinds import summarize
from argosy.kinds.aresjob import AresJob
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.summary import JobSummary, RoleSummary
from argosy.workload.record import Record
from argosy.workload.record_encoding import encode
from tests.support.workloads import NOW

META = {"name": "mnist", "namespace": "team", "uid": "u"}
RESTART = {
    "time": NOW,
    "role": "worker",
    "index": 1,
    "cause": "NonZeroExit",
    "scope": "Pod",
    "message": "it failed",
}
COMMON = {"phase": "Running", "message": "attempt 2", "startTime": NOW, "restartHistory": [RESTART]}
COUNTS = {"phase": "Running", "active": 1, "succeeded": 1, "restarts": 3}
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}

JOBS = {
    "TrainingRun": msgspec.convert(
        {
            "metadata": META,
            "spec": {"framework": "custom", "roles": {"worker": {"replicas": 4, "template": TEMPLATE}}},
            "status": {**COMMON, "attempt": 2, "restarts": 3, "roles": {"worker": COUNTS}},
        },
        TrainingRun,
    ),
    "AresJob": msgspec.convert(
        {
            "metadata": META,
            "spec": {"frameworkType": "custom", "roleSpecs": {"worker": {"replicas": 4}}},
            "status": {**COMMON, "roleStatuses": {"worker": COUNTS}, "argosy": encode(Record(attempt=2))},
        },
        AresJob,
    ),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_summarize(job: TrainingRun | AresJob) -> None:
    summary = summarize(job)
    assert isinstance(summary, JobSummary)
    assert (summary.namespace, summary.name, summary.framework) == ("team", "mnist", "custom")
    assert (summary.phase, summary.message, summary.attempt, summary.restarts) == (
        "Running",
        "attempt 2",
        2,
        3,
    )
    assert summary.roles == [RoleSummary("worker", "Running", 2, 4, 3, "")]
    assert (summary.workers, summary.kind) == ("2/4", type(job).resource.kind)
    assert [restart.message for restart in summary.restart_history] == ["it failed"]


def test_a_job_without_a_status_is_pending() -> None:
    summary = summarize(msgspec.convert({"metadata": META, "spec": {"roleSpecs": "nonsense"}}, AresJob))
    assert (summary.phase, summary.workers, summary.attempt, summary.framework) == ("Pending", "", 0, "")
