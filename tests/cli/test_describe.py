"""The output of `argosy describe`."""

from datetime import timedelta

import msgspec

from argosy.cli.describe import format_job
from argosy.cli.jobkinds import summarize
from argosy.kinds.kubernetes import Event, Pod
from argosy.kinds.labels import ATTEMPT, INDEX, ROLE
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.summary import JobSummary
from tests.support.workloads import NOW

META = {"name": "mnist", "namespace": "team", "uid": "u"}
RESTART = {
    "time": NOW - timedelta(minutes=5),
    "attempt": 1,
    "role": "worker",
    "index": 0,
    "cause": "NonZeroExit",
    "scope": "Pod",
    "message": "worker-0 failed (exit 3)",
}
POD = msgspec.convert(
    {
        "metadata": {
            "name": "mnist-worker-0",
            "labels": {ROLE: "worker", INDEX: "0", ATTEMPT: "1"},
            "creationTimestamp": NOW - timedelta(seconds=30),
        },
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
            ],
        },
    },
    Pod,
)
EVENT = msgspec.convert(
    {
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "Restarting",
        "message": "worker-0 failed",
        "lastTimestamp": NOW - timedelta(seconds=20),
        "count": 2,
    },
    Event,
)


NOTICE = {
    "since": NOW - timedelta(seconds=10),
    "deadline": NOW + timedelta(seconds=50),
    "cause": "Preempted",
    "response": "ScaleIn",
    "node": "node-3",
    "replicas": ["worker-2", "worker-3"],
    "message": "node-3 is being preempted (spot) by 12:00:50 UTC",
}


USAGE = {
    "training": 3000,
    "lost": 600,
    "activity": "Training",
    "replicas": 4,
    "since": NOW - timedelta(seconds=600),
    "cost": "1.2500",
    "lostCost": "0.2000",
}


def job(phase: str, namespace: str = "team") -> JobSummary:
    raw = {
        "metadata": {**META, "namespace": namespace, "creationTimestamp": NOW - timedelta(minutes=6)},
        "spec": {"framework": "custom", "roles": {"worker": {"template": {}}}},
        "status": {"phase": phase, "startTime": NOW, "attempt": 1, "restartHistory": [RESTART]}
        | {"notices": [NOTICE], "usage": USAGE},
    }
    return summarize(msgspec.convert(raw, TrainingRun))


def test_every_table_has_a_title_and_the_columns_that_kubectl_uses() -> None:
    tables = format_job(job("Failed"), [POD], [EVENT], NOW).split("\n\n")[1:]
    rows = {table.splitlines()[0]: [line.split() for line in table.splitlines()[1:3]] for table in tables}
    assert rows["Pods:"][0] == ["POD", "STATUS", "ATTEMPT", "NODE", "AGE", "MESSAGE"]
    assert rows["Pods:"][1][2:6] == ["Failed", "1", "node-1", "30s"]
    assert rows["Restarts:"][0] == ["AGE", "ATTEMPT", "CAUSE", "SCOPE", "MESSAGE"]
    assert rows["Restarts:"][1][:2] == ["5m", "1"]
    assert rows["Notices:"][0] == ["DEADLINE", "CAUSE", "RESPONSE", "REPLICAS", "MESSAGE"]
    assert rows["Notices:"][1][:7] == ["in", "50s", "Preempted", "ScaleIn", "worker-2", "and", "worker-3"]
    assert rows["Time:"][0] == ["ACTIVITY", "REPLICA", "TIME", "SHARE"]
    assert rows["Time:"][1] == ["Training", "90m", "90%"]
    assert rows["Events:"][0] == ["LAST", "SEEN", "TYPE", "REASON", "MESSAGE"]
    assert rows["Events:"][1][:3] == ["20s", "Warning", "Restarting"]


def test_a_failed_job_shows_the_command_for_its_output() -> None:
    assert _field(format_job(job("Failed"), [POD], [], NOW), "logs") == "argosy logs -n team mnist"
    assert _field(format_job(job("Failed", "default"), [POD], [], NOW), "logs") == "argosy logs mnist"


def test_the_cost_of_a_job_names_the_part_that_is_lost() -> None:
    text = format_job(job("Running"), [], [], NOW)
    assert _field(text, "cost") == "1.2500 (0.2000 for lost training)"


def test_a_restarting_job_shows_the_command_that_follows_its_output() -> None:
    assert _field(format_job(job("Restarting"), [], [], NOW), "logs") == "argosy logs -n team -f mnist"


def test_an_ended_job_without_pods_shows_no_command_for_its_output() -> None:
    assert _field(format_job(job("Failed"), [], [], NOW), "logs") is None


def _field(text: str, name: str) -> str | None:
    head = dict(line.split(maxsplit=1) for line in text.split("\n\n")[0].splitlines())
    return head.get(name)
