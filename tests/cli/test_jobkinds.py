"""Jobs of every kind are shown in the same words."""

import msgspec
import pytest

from argosy.cli.jobkinds import JobSummary, RoleSummary, summarize
from argosy.kinds.aresjob import AresJob
from argosy.kinds.trainingrun import TrainingRun
from argosy.workload.record import Record, encode
from tests.support.workloads import NOW

META = {"name": "mnist", "namespace": "team", "uid": "u"}
RESTART = {"time": NOW, "role": "worker", "index": 1, "cause": "Exit", "rung": "Pod", "message": "it failed"}
COMMON = {"phase": "Running", "message": "attempt 2", "startTime": NOW, "restartHistory": [RESTART]}
COUNTS = {"phase": "Running", "active": 1, "succeeded": 1, "restarts": 3}
TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}

JOBS = {
    "a training run": msgspec.convert(
        {
            "metadata": META,
            "spec": {"framework": "custom", "roles": {"worker": {"replicas": 4, "template": TEMPLATE}}},
            "status": {**COMMON, "attempt": 2, "restarts": 3, "roles": {"worker": COUNTS}},
        },
        TrainingRun,
    ),
    "an AresJob": msgspec.convert(
        {
            "metadata": META,
            "spec": {"frameworkType": "custom", "roleSpecs": {"worker": {"replicas": 4}}},
            "status": {**COMMON, "roleStatuses": {"worker": COUNTS}, "argosy": encode(Record(attempt=2))},
        },
        AresJob,
    ),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_shown(job: TrainingRun | AresJob) -> None:
    found = summarize(job)
    assert isinstance(found, JobSummary)
    assert (found.namespace, found.name, found.framework) == ("team", "mnist", "custom")
    assert (found.phase, found.message, found.attempt, found.restarts) == ("Running", "attempt 2", 2, 3)
    assert found.roles == [RoleSummary("worker", "Running", 2, 4, 3, "")]
    assert (found.workers, found.kind) == ("2/4", type(job).resource.kind)
    assert [one.message for one in found.restart_history] == ["it failed"]


def test_a_job_of_which_nothing_is_known_yet() -> None:
    found = summarize(msgspec.convert({"metadata": META, "spec": {"roleSpecs": "nonsense"}}, AresJob))
    assert (found.phase, found.workers, found.attempt, found.framework) == ("Pending", "", 0, "")
