"""Tests what `argosy describe` shows of a SpotInstanceJob, from a simulated one."""

import msgspec

from argosy.cli.describe import format_job
from argosy.kinds.kubernetes import Pod
from argosy.operator.apis.spot_summary import PODS, summarize
from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0
PREEMPTED = "cloud.google.com/impending-node-termination"


def described(simulator: SpotSimulator) -> dict[str, list[list[str]]]:
    """The tables of `argosy describe` as rows of words, by title; the header has none."""
    pods = [
        _pod(pod.metadata.name, pod.metadata.labels, pod.spec.node_name) for pod in simulator.pods.values()
    ]
    text = format_job(summarize(simulator.job), pods, [], simulator.now, PODS)
    header, *tables = text.split("\n\n")
    titled = {table.splitlines()[0]: table.splitlines()[1:] for table in tables}
    return {
        title: [line.split() for line in lines]
        for title, lines in {"": header.splitlines(), **titled}.items()
    }


def _pod(name: str, labels: dict[str, str], node: str) -> Pod:
    raw: Json = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}}
    return msgspec.convert({**raw, "status": {"phase": "Running"}}, Pod)


def test_a_job_on_bought_machines_shows_its_replicas_machines_checkpoint_recoveries_and_cost() -> None:
    simulator = SpotSimulator({"replicas": 2})
    simulator.run(40 * MINUTE)
    simulator.taint(str(simulator.replica(0)["nodeName"]), PREEMPTED)
    simulator.run(5 * MINUTE)
    shown = described(simulator)
    header = {row[0]: row[1:] for row in shown[""]}
    assert header["kind"] == ["SpotInstanceJob"]
    assert header["price"] == ["0.300", "per", "hour", "(0.700", "less", "than", "on", "demand)"]
    assert float(header["cost"][0]) > 0
    assert header["checkpoint"][:2] == ["processes,", "5m"]
    assert header["checkpoint"][-1].startswith("gcr.io/my-project/checkpoints:training-")
    head, first, second = shown["Replicas:"]
    assert head[:4] == ["REPLICA", "PHASE", "INCARNATION", "START"]
    machine = str(simulator.replica(0)["instanceName"])
    assert first[:5] == ["replica-0", "(standby)", "Running", "1", "CheckpointImage"]
    assert first[5:] == [machine, machine, "us-central1-a", "0.15", "0", "1"]
    assert second[:5] == ["replica-1", "(primary)", "Running", "0", "Fresh"]
    [_, recovery] = shown["Recoveries:"]
    assert recovery[0] == "5m"
    assert recovery[1:5] == ["Preempted", PREEMPTED, "None", "Recovered"]
    assert {row[0] for row in shown["Pods:"][1:]} == {"replica-0", "replica-1"}
    assert shown["Time:"][1][0] == "Training"


def test_a_job_that_was_not_accepted_shows_why() -> None:
    simulator = SpotSimulator(template=False)
    simulator.run(1)
    summary = summarize(simulator.job)
    assert (summary.reason, summary.started) == ("TemplateNotFound", False)
    assert "my-training-vm does not exist" in summary.message


def test_a_job_that_waits_for_machines_shows_what_they_lack() -> None:
    simulator = SpotSimulator()
    simulator.machines = False
    simulator.run(MINUTE)
    summary = summarize(simulator.job)
    assert summary.reason == "Provisioning"
    assert "the VM has not joined the cluster" in summary.message


def test_a_running_job_has_no_reason() -> None:
    simulator = SpotSimulator()
    simulator.run(MINUTE)
    summary = summarize(simulator.job)
    assert (summary.phase, summary.reason, summary.message, summary.workers) == ("Running", "", "", "2/2")
