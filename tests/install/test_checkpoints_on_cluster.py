"""Checkpoints on a real cluster: announced ends and drains of nodes, stores that fail, and fewer workers.

The stores are on the machine, at the address at which pods reach the API server. Tests run in the order of
the file, with one installation.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from argosy.kinds import labels
from argosy.kinds.meta import Json
from tests.support.cluster import images
from tests.support.cluster.release import Release
from tests.support.cluster.running import RunningCluster
from tests.support.cluster.trainings import (
    RunningTraining,
    StoreServer,
    apply,
    checkpointed_run,
    oci_store,
    s3_store,
)
from tests.support.commands import REPOSITORY
from tests.support.registry import PROGRAM
from tests.support.s3_server import require_s3_server
from tests.support.spot_jobs import spot_job, spot_vm
from tests.support.spot_trainings import CONTAINERS
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.sequential,
    pytest.mark.timeout(600),
]

NODES = ("node-1", "node-2")
DEADLINE = "training.dcnlab.com/termination-deadline"
LATER = "2100-01-01T00:00:00Z"
ELASTIC, LOCKSTEP = (REPOSITORY / f"tests/support/{name}.py" for name in ("elastic_training", "lockstep"))
SAVES = REPOSITORY / "examples/checkpointed/train.py"
ENDS_AT_SIGTERM = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
SAVES_AT_SIGTERM = REPOSITORY / "examples/checkpointed/sigterm.py"


@pytest.fixture(scope="module")
def installed(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The operator with SpotInstanceJobs, without node agents."""
    release = Release(cluster)
    values = ("apis.spot=true", "replicas=1", "agent.enabled=false")
    release.install(*(word for value in values for word in ("--set", value)))
    yield cluster
    release.uninstall()
    cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")


@pytest.fixture
def shared(installed: RunningCluster, request: pytest.FixtureRequest) -> Path:
    """A folder that both nodes have at the same path."""
    folder = installed.folder / "shared" / str(request.node.name)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def announce(installed: RunningCluster) -> Iterator[Callable[[str], None]]:
    """Announce the end of a node; the nodes stay when the test ends."""

    def annotate(node: str) -> None:
        installed.kubectl("annotate", "node", node, f"{DEADLINE}={LATER}")

    yield annotate
    for node in NODES:
        installed.kubectl("annotate", "node", node, f"{DEADLINE}-")


def test_program_that_only_handles_sigterm_saves_moves_and_loses_no_step(
    installed: RunningCluster, shared: Path, announce: Callable[[str], None]
) -> None:
    training = RunningTraining(installed, "sigterm")
    program = container(SAVES_AT_SIGTERM.read_text(), STEPS="100000")
    checkpoint: Json = {"store": f"file://{shared}", "signal": "SIGTERM"}
    apply(installed, checkpointed_run("sigterm", role(program, grace=20), checkpoint))
    wait_for(lambda: len(computed(shared, "computed.txt")) > 20, training.show, 120)
    [before], first = training.nodes(), training.uids()
    announce(before)
    wait_for(lambda: training.outcomes() == ["Recovered"], training.show, 120)
    [recovery] = training.recoveries
    saved = recovery["restoredFrom"]
    assert (recovery["cause"], recovery["action"], recovery["stepsLost"]) == ("Preempted", "SignalAndMove", 0)
    assert saved == training.checkpoint["lastStep"] >= 20
    assert before not in training.nodes()
    assert training.uids().keys() == first.keys()
    wait_for(lambda: len(computed(shared, "computed.txt")) > saved + 20, training.show)
    assert training.log()[0] == f"from step {saved} (attempt {training.status['attempt']})"
    assert training.status.get("restarts", 0) == 0
    delete(installed, "tr/sigterm")


Serve = Callable[[RunningCluster, Path], AbstractContextManager[StoreServer]]
STORES = [
    pytest.param(s3_store, {}, id="s3"),
    pytest.param(
        oci_store,
        {"runAsUser": 1000, "runAsNonRoot": True},
        id="oci",
        marks=pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
    ),
]


@pytest.mark.parametrize(("serve", "security"), STORES)
def test_run_trains_on_while_its_store_is_down_and_a_drain_waits_until_it_has_saved(
    installed: RunningCluster, tmp_path: Path, serve: Serve, security: Json, request: pytest.FixtureRequest
) -> None:
    """The operator is on the node that is drained, and is evicted first.

    One run is root, as its image says; the sidecar of the other one has the user of its template.
    """
    name = request.node.callspec.id
    if name == "s3":
        require_s3_server()
    training, log = RunningTraining(installed, name), tmp_path / "drain.log"
    with serve(installed, tmp_path) as store:
        checkpoint: Json = {"store": store.uri, "credentials": name, "interval": "2s", "onDrain": "Save"}
        apply(installed, store.secret, lockstep_run(name, checkpoint, security))
        wait_for(lambda: training.checkpoint.get("lastStep"), training.show, 180)
        before = training.uids()
        assert training.nodes() == set(NODES)
        first = training.checkpoint["lastStep"]
        wait_for(lambda: training.checkpoint["lastStep"] > first + 100, training.show)
        wait_for(lambda: len(training.saved()) <= 2, lambda: f"{training.saved()}\n{training.show()}")
        store.stop()
        step = training.step()
        wait_for(lambda: training.step() > step + 30, training.show)
        assert (training.uids(), training.status["attempt"]) == (before, 1), "training goes on"
        assert training.checkpoint["lastStep"] <= step, "nothing is stored meanwhile"
        drained = operator_node(installed)
        words = (
            "drain",
            drained,
            "--ignore-daemonsets",
            "--force",
            "--delete-emptydir-data",
            "--timeout=300s",
        )
        with installed.running_kubectl(log, *words) as drain:
            wait_for(
                lambda: "disruption budget" in log.read_text(), lambda: log.read_text() + training.show()
            )
            wait_for(lambda: "(Drained)" in training.checkpoint.get("message", ""), training.show, 120)
            assert training.uids() == before, "no pod is evicted"
            store.start()
            assert drain.wait(timeout=180) == 0, log.read_text()
        wait_for(lambda: training.outcomes() == ["Recovered"], training.show, 180)
        [recovery] = training.recoveries
        saved = recovery["savedStep"]
        assert (recovery["cause"], recovery["restoredFrom"], recovery["stepsLost"]) == ("Drained", saved, 0)
        assert saved > step + 30
        wait_for(lambda: training.status["phase"] in ("Succeeded", "Failed"), training.show, 180)
        assert training.status["phase"] == "Succeeded", training.show()
        assert drained not in training.nodes()
        assert training.log()[0] == f"from step {saved}"
        assert training.log()[-1] == f"result {undisturbed_result(LOCKSTEP_STEPS)}"
        delete(installed, f"tr/{name}", f"secret/{name}")
    installed.kubectl("uncordon", drained)


def test_pod_that_starts_while_its_store_is_down_waits_and_continues_from_there(
    installed: RunningCluster, tmp_path: Path
) -> None:
    require_s3_server()
    training = RunningTraining(installed, "waits")
    with s3_store(installed, tmp_path) as store:
        checkpoint: Json = {"store": store.uri, "credentials": "s3", "interval": "2s"}
        program = container(ENDS_AT_SIGTERM + SAVES.read_text(), STEPS="100000")
        apply(installed, store.secret, checkpointed_run("waits", role(program, grace=20), checkpoint))
        wait_for(lambda: training.checkpoint.get("lastStep"), training.show, 120)
        store.stop()
        step = training.step()
        wait_for(lambda: training.step() > step + 60, training.show)
        last = training.checkpoint["lastStep"]
        installed.kubectl("delete", "pod", "waits-worker-0")
        init = "argosy-checkpoint-init"
        wait_for(lambda: any("trying again" in line for line in training.log(init)), training.show)
        store.start()
        wait_for(lambda: training.outcomes() == ["ProgressLost"], training.show, 120)
        [recovery] = training.recoveries
        assert recovery["restoredFrom"] == last, "what was not sent is lost with the pod"
        assert recovery["stepsLost"] > step + 60 - last, "the sidecar reports the last step all the same"
        assert training.log()[0].startswith(f"from step {last} "), training.show()
        wait_for(lambda: training.checkpoint["lastStep"] > last, training.show)
        assert (training.status["attempt"], training.status.get("restarts", 0)) == (1, 0)
        delete(installed, "tr/waits", "secret/s3")


def test_workers_that_leave_an_elastic_run_have_saved_and_the_others_train_on(
    installed: RunningCluster, shared: Path
) -> None:
    training = RunningTraining(installed, "shrinks")
    program = container(ELASTIC.read_text())
    elastic: Json = {"min": 1, "max": 4}
    worker = {**role(program), "replicas": 3, "elastic": elastic}
    apply(installed, checkpointed_run("shrinks", worker, {"store": f"file://{shared}"}, "custom"))

    def steps(worker: int) -> list[int]:
        return computed(shared, f"computed-{worker}.txt")

    wait_for(lambda: all(len(steps(index)) > 5 for index in range(3)), training.show, 120)
    before = training.uids()
    [folder] = shared.glob("default/shrinks-*")
    (folder / "hold").touch()
    installed.kubectl("scale", "tr/shrinks", "--replicas=1")
    wait_for(lambda: "(Resized)" in training.checkpoint.get("message", ""), training.show)
    assert training.uids() == before, "nobody leaves before the checkpoint"
    (folder / "hold").unlink()
    wait_for(lambda: list(training.uids()) == ["shrinks-worker-0"], training.show, 120)
    [file] = folder.glob("step-*/steps.json")
    saved = json.loads(file.read_text())
    left = {str(index): len(steps(index)) for index in (1, 2)}
    assert saved == {"0": saved["0"], **left}, "the leaving workers have saved their last steps"
    wait_for(lambda: len(steps(0)) > saved["0"] + 20, training.show)
    assert training.uids().items() <= before.items(), "worker 0 was not restarted"
    wait_for(lambda: training.outcomes() == ["Recovered"], training.show)
    [recovery] = training.recoveries
    assert (recovery["cause"], recovery["action"]) == ("Resized", "ScaleIn")
    assert recovery.get("stepsLost") == 0, training.show()
    delete(installed, "tr/shrinks")


def test_replica_whose_node_is_announced_to_end_continues_from_its_last_step(
    installed: RunningCluster, shared: Path, announce: Callable[[str], None]
) -> None:
    for node in NODES:
        gpu = {"nvidia.com/gpu": "1"}
        patch = json.dumps({"status": {"capacity": gpu, "allocatable": gpu}})
        installed.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)
    gpu = {"nvidia.com/gpu": "1"}
    program = {**container(SAVES.read_text(), STEPS="100000"), "resources": {"requests": gpu, "limits": gpu}}
    changes: Json = {
        "replicas": 1,
        CONTAINERS: [program],
        "checkpointConfig.level": "App",
        "checkpointConfig.checkpointInterval": "2s",
        "checkpointConfig.checkpointStorage": {"type": "file", "bucket": str(shared)},
    }
    apply(installed, spot_vm(), spot_job("kept", changes))

    def status() -> dict[str, Any]:
        return cast("dict[str, Any]", installed.get("spotinstancejob", "kept").get("status", {}))

    def replica() -> dict[str, Any]:
        return cast("dict[str, Any]", status()["jobStatuses"][0])

    def outcomes() -> list[str]:
        return [recovery.get("outcome", "") for recovery in status().get("recoveries", [])]

    def show() -> str:
        return installed.kubectl("describe", "spotinstancejobs,jobs,pods,nodes", code=None).stdout

    wait_for(lambda: len(computed(shared, "replica-0/computed.txt")) > 500, show, 120)
    wait_for(lambda: 5 <= len(list(shared.glob("default/*/replica-0/step-*"))) <= 6, show)
    before = replica()
    announce(before["nodeName"])
    wait_for(lambda: outcomes() == ["Recovered"], show, 180)
    [recovery] = status()["recoveries"]
    assert (recovery["cause"], recovery["action"]) == ("Preempted", "CheckpointMade")
    step = int(recovery["restoredFrom"].removeprefix("step "))
    after = replica()
    assert (after["incarnation"], after["nodeName"] != before["nodeName"]) == (1, True)
    log = installed.kubectl("logs", f"job/{after['name']}", "-c", "main").stdout.splitlines()
    assert log[0] == f"from step {step} (attempt 1)"
    steps = "replica-0/computed.txt"
    wait_for(lambda: len(computed(shared, steps)) > step + 20, show)
    delete(installed, "spotinstancejob/kept")


LOCKSTEP_STEPS = 3000


def lockstep_run(name: str, checkpoint: Json, security: Json) -> Json:
    """Return a run of two ranks, one on each node if there are two, which is fast once it has resumed."""
    program = container(LOCKSTEP.read_text(), str(LOCKSTEP_STEPS), PACE="0.1")
    spread: Json = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {labels.JOB: name}},
    }
    template = role(program, topologySpreadConstraints=[spread], securityContext=security)
    worker = {**template, "replicas": 2}
    return checkpointed_run(name, worker, checkpoint, "pytorch")


def undisturbed_result(steps: int) -> str:
    """Compute what two ranks of `lockstep` print at their end."""
    states = ("", "")
    for step in range(1, steps + 1):
        pairs = ((states[0], states[1]), (states[1], states[0]))
        texts = (f"{own} {other} {step} {rank}" for rank, (own, other) in enumerate(pairs))
        first, second = (hashlib.sha256(text.encode()).hexdigest() for text in texts)
        states = (first, second)
    return hashlib.sha256(" ".join(sorted(states)).encode()).hexdigest()


def container(program: str, *words: str, **variables: str) -> Json:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {"name": "main", "image": images.PYTHON, "command": ["python3", "-c", program, *words], "env": env}


def role(program: Json, grace: int = 2, **pod: object) -> Json:
    spec = {"terminationGracePeriodSeconds": grace, "containers": [program], **pod}
    return {"template": {"spec": spec}}


def computed(store: Path, file: str) -> list[int]:
    """Return the steps in a file of the only job of a store; fails if one was lost or computed twice."""
    found = list(store.glob(f"default/*/{file}"))
    steps = [int(line) for line in found[0].read_text().split()] if found else []
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or computed twice"
    return steps


def operator_node(cluster: RunningCluster) -> str:
    [pod] = Release(cluster).pods()
    return str(pod["spec"]["nodeName"])


def delete(cluster: RunningCluster, *objects: str) -> None:
    cluster.kubectl("delete", *objects, "--timeout=120s", timeout=150)
