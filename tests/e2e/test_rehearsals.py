"""`argosy nodes` and `argosy rehearse` on a control plane whose nodes are NotReady after three seconds."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from argosy.local.node.shim_manager import has_shim
from tests.support.builders import run
from tests.support.chaos import kill_component
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

Json = dict[str, object]

UP = ("--nodes", "2", "--pretend-gpus", "1", "--node-monitor-grace-period", "3")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One control plane for all tests of this module; each uses a node of its own."""
    running = ControlPlane.up(*UP)
    yield running
    running.down()


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    """A node for this test only."""
    added = json.loads(plane.argosy("nodes", "add", "-o", "json").stdout)["name"]
    yield added
    plane.argosy("nodes", "remove", added, code=None)
    plane.kubectl("delete", "pods", "--all", "--force", "--wait=false")


def start_pod(plane: ControlPlane, name: str, node: str, **spec: object) -> str:
    """Start a pod on a node and wait until it is Ready; returns its uid."""
    create_pod(plane, name, node, **spec)
    plane.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout=70)
    return field(plane, f"pod/{name}", ".metadata.uid")


def create_pod(plane: ControlPlane, name: str, node: str, **spec: object) -> None:
    container = {"name": "main", "image": "local", "command": ["sleep", "600"]}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def field(plane: ControlPlane, name: str, path: str) -> str:
    """A field of an object; empty if there is no such object."""
    return plane.kubectl("get", name, "-o", f"jsonpath={{{path}}}", "--ignore-not-found").stdout


def ready(plane: ControlPlane, name: str) -> str:
    return field(plane, name, '.status.conditions[?(@.type=="Ready")].status')


def row(plane: ControlPlane, node: str) -> Json:
    """What `argosy nodes` shows of a node; empty if it is not there."""
    rows = cast("list[Json]", json.loads(plane.argosy("nodes", "-o", "json").stdout))
    return next((row for row in rows if row["name"] == node), {})


def has_processes(plane: ControlPlane, uid: str) -> bool:
    return has_shim(plane.state.pods / uid)


def tolerate(seconds: int) -> dict[str, object]:
    key = "node.kubernetes.io/unreachable"
    taint = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return {"tolerations": [taint]}


@pytest.mark.long
def test_a_silenced_node_is_not_ready_and_loses_its_pods_until_it_resumes(
    plane: ControlPlane, node: str
) -> None:
    uid = start_pod(plane, "cut-off", node, **tolerate(1))
    said = plane.argosy("nodes", "silence", node).stdout
    assert said == (
        f"{node} is silenced: its pods (1) run on, and it becomes NotReady; "
        f"`argosy nodes resume {node}` reconnects it\n"
    )
    plane.kubectl("wait", f"node/{node}", "--for=condition=Ready=Unknown", "--timeout=60s", timeout=70)
    assert row(plane, node) == {"name": node, "status": "NotReady", "pods": 1, "notice": "silenced"}
    wait_for(lambda: ready(plane, "pod/cut-off") == "False", "the pod is marked")
    wait_for(lambda: field(plane, "pod/cut-off", ".metadata.deletionTimestamp"), "the pod is evicted")
    reason = field(plane, "pod/cut-off", '.status.conditions[?(@.type=="DisruptionTarget")].reason')
    assert reason == "DeletionByTaintManager"
    assert "does not answer" in plane.kubectl("logs", "cut-off", code=1).stderr
    assert has_processes(plane, uid)
    said = plane.argosy("nodes", "resume", node).stdout
    assert said == f"{node} is back and Ready; it ends pods that were deleted meanwhile\n"
    wait_for(lambda: not field(plane, "pod/cut-off", ".metadata.uid"), "the node ends the pod")
    assert not has_processes(plane, uid)
    wait_for(lambda: "unreachable" not in field(plane, f"node/{node}", ".spec.taints"), "it is accepted")


def test_pods_of_a_removed_node_are_garbage_collected(plane: ControlPlane, node: str) -> None:
    uid = start_pod(plane, "orphan", node)
    said = plane.argosy("nodes", "remove", node).stdout
    assert said == f"{node} removed: its pods (1) were killed and are garbage-collected shortly\n"
    assert not has_processes(plane, uid)
    assert field(plane, f"node/{node}", ".metadata.uid") == ""
    assert row(plane, node) == {}
    assert field(plane, "pod/orphan", ".status.phase") == "Running"
    wait_for(lambda: not field(plane, "pod/orphan", ".metadata.uid"), "the pod is garbage-collected")


def test_a_reclaimed_node_is_announced_vanishes_and_returns_as_a_new_one(
    plane: ControlPlane, node: str
) -> None:
    uid = start_pod(plane, "spot", node)
    before = field(plane, f"node/{node}", ".metadata.uid")
    said = plane.argosy("rehearse", "reclaim", node, "--in", "2s", "--back-after", "4s").stdout
    assert said.startswith(f"announced on {node} (argosy.dev/termination-deadline): in ")
    assert said.endswith(f" it vanishes with its pods (1); a new {node} appears 4 s later\n")
    source = field(plane, f"node/{node}", r".metadata.annotations.argosy\.dev/termination-source")
    assert source == "rehearsal"
    assert "ends in " in cast("str", row(plane, node)["notice"])
    wait_for(lambda: row(plane, node)["status"] == "Reclaimed", "the node vanishes")
    assert not has_processes(plane, uid)
    assert field(plane, f"node/{node}", ".metadata.uid") == ""
    wait_for(lambda: row(plane, node)["status"] == "Ready", "the node returns")
    assert field(plane, f"node/{node}", ".metadata.uid") not in ("", before)
    assert "termination" not in field(plane, f"node/{node}", "")
    assert row(plane, node)["notice"] == ""


@pytest.mark.long
def test_a_stopped_node_survives_the_death_of_its_agent_and_is_switched_on_again(
    plane: ControlPlane, node: str
) -> None:
    uid = start_pod(plane, "server", node)
    said = plane.argosy("rehearse", "stop-node", node, "--for", "3s").stdout
    assert said == f"{node} is off: its pods (1) were killed; it is switched on in 3 s\n"
    assert not has_processes(plane, uid)
    kill_component(plane, "node")
    assert cast("str", row(plane, node)["notice"]).startswith("stopped, back in ")
    wait_for(lambda: has_processes(plane, uid), "the node is on")
    path = ".status.containerStatuses[0].restartCount"
    wait_for(lambda: field(plane, "pod/server", path) == "1", "its pod started again")
    assert row(plane, node)["notice"] == ""


def test_kill_pod_ends_a_pod_as_a_crash_does(plane: ControlPlane, node: str) -> None:
    start_pod(plane, "victim", node, restartPolicy="Never")
    said = plane.argosy("rehearse", "kill-pod", "victim", "--signal", "SIGSEGV").stdout
    assert said == (
        f"sent SIGSEGV to victim on {node} (main); what ends is not restarted (restartPolicy Never)\n"
    )
    wait_for(lambda: field(plane, "pod/victim", ".status.phase") == "Failed", "the pod fails")
    code = field(plane, "pod/victim", ".status.containerStatuses[0].state.terminated.exitCode")
    assert code == "139"
    refused = plane.argosy("rehearse", "kill-pod", "victim", code=1)
    assert refused.stderr == "Error: victim: no container is running (phase Failed)\n"


def test_a_cordoned_node_gets_no_new_pods(plane: ControlPlane, node: str) -> None:
    assert plane.argosy("nodes", "cordon", node).stdout.startswith(f"{node} cordoned: ")
    wait_for(lambda: row(plane, node)["status"] == "Ready,SchedulingDisabled", "it is shown")
    create_pod(plane, "late", node)
    scheduled = '.status.conditions[?(@.type=="PodScheduled")].reason'
    wait_for(lambda: field(plane, "pod/late", scheduled) == "Unschedulable", "it is not scheduled")
    plane.argosy("nodes", "uncordon", node)
    plane.kubectl("wait", "--for=condition=Ready", "pod/late", "--timeout=60s", timeout=70)


def test_a_job_replaces_the_worker_of_a_reclaimed_node_elsewhere(plane: ControlPlane, node: str) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"argosy.dev/job": "spot"}},
    }
    container = {"name": "main", "image": "local", "command": ["sleep", "600"]}
    spec = {"containers": [container], "topologySpreadConstraints": [spread]}
    job = run("spot").role("worker", 3, restart="OnFailure", template={"spec": spec})
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))
    wait_for(lambda: field(plane, "tr/spot", ".status.phase") == "Running", "the job runs")
    on_node = f'.items[?(@.spec.nodeName=="{node}")].metadata.name'
    lost = field(plane, "pods", on_node)
    assert lost.startswith("spot-worker-")
    plane.argosy("rehearse", "reclaim", node, "--in", "0s")
    wait_for(lambda: field(plane, f"pod/{lost}", ".spec.nodeName") in ("node-1", "node-2"), "it moves")
    wait_for(lambda: field(plane, "tr/spot", ".status.phase") == "Running", "the job runs again")
    assert field(plane, "tr/spot", ".status.restarts") in ("", "0")
    plane.argosy("rm", "spot")


REJECTED = {
    "unknown node": (("nodes", "silence", "nod-1"), 'unknown node "nod-1"; did you mean "node-1"?'),
    "unknown node to cordon": (("nodes", "cordon", "nod-1"), 'unknown node "nod-1"; did you mean "node-1"?'),
    "unknown node to reclaim": (("rehearse", "reclaim", "x", "--in", "1s"), 'unknown node "x" (known nodes'),
    "name in use": (("nodes", "add", "node-1"), "node-1: there is a node of this name (running)"),
    "unknown pod": (("rehearse", "kill-pod", "x"), 'namespace default: unknown pod "x"'),
}


@pytest.mark.parametrize(("words", "message"), REJECTED.values(), ids=REJECTED.keys())
def test_mistakes_are_reported_in_one_line(plane: ControlPlane, words: tuple[str, ...], message: str) -> None:
    refused = plane.argosy(*words, code=1)
    assert refused.stderr.startswith(f"Error: {message}")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.long
def test_up_keeps_changed_nodes_and_down_forgets_them() -> None:
    alone = (*UP, "--no-operator")
    plane = ControlPlane.up(*alone)
    try:
        plane.argosy("nodes", "add", "extra", "--pretend-gpus", "3")
        plane.argosy("nodes", "remove", "node-2")
        assert field(plane, "node/extra", r".status.allocatable.nvidia\.com/gpu") == "3"
        plane.argosy("nodes", "add", "silent")
        plane.argosy("nodes", "silence", "silent")
        assert plane.argosy("up", *alone).stdout.startswith("2 nodes ready: node-1, extra (")
        plane.argosy("down")
        assert plane.argosy("up", *alone).stdout.startswith("2 nodes ready: node-1, node-2 (")
        wait_for(lambda: not field(plane, "node/extra", ".metadata.uid"), "the added node is forgotten")
        assert json.loads(plane.argosy("nodes", "-o", "json").stdout)[0]["name"] == "node-1"
    finally:
        plane.down()
