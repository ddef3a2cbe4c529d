"""Tests for a real cluster of two nodes: it runs workloads, is repaired, and is removed without a trace.

All tests share the cluster of the session, in the order of the file; the last ones damage it. They run in
`--long`: by default the conformance suite uses all of this on such a cluster, and repairs it.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest

from tests.support import commands, kubernetes
from tests.support.assets import DEFAULT, Programs, minors
from tests.support.cluster import images, lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.running import RunningCluster
from tests.support.cluster.state import strays
from tests.support.local_control_plane import KUBECTL
from tests.support.waiting import retry_until

pytestmark = [
    *(pytest.mark.cluster, pytest.mark.root, pytest.mark.long),
    *(pytest.mark.sequential, pytest.mark.timeout(300)),
]

MANIFEST = f"""
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8000}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: each}}
spec: {{clusterIP: None, selector: {{app: web}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app: web}}}}
      securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
      - name: web
        image: {images.PYTHON}
        command: [sh, -c, 'echo serving on $HOSTNAME; hostname > index.html; exec python3 -u -m http.server']
        workingDir: /tmp
        readinessProbe: {{httpGet: {{port: 8000}}, periodSeconds: 1}}
        securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
        resources: {{limits: {{memory: 128Mi, cpu: 500m}}}}
"""
FETCH = """
import sys, urllib.request
answers = {urllib.request.urlopen(sys.argv[1], timeout=10).read().decode().strip() for _ in range(30)}
print(*sorted(answers))
"""
LOOK_UP = """
import socket, sys
print(*sorted({found[4][0] for found in socket.getaddrinfo(sys.argv[1], 80)}))
"""


@pytest.fixture(scope="module")
def cluster(cluster: RunningCluster) -> RunningCluster:
    """The session's cluster with a Deployment on both nodes."""
    cluster.kubectl("apply", "-f", "-", stdin=MANIFEST)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s", timeout=100)
    return cluster


def test_pods_on_both_nodes_resolve_each_other(cluster: RunningCluster) -> None:
    pods = _pods(cluster)
    assert sorted(node for node, _ in pods.values()) == ["node-1", "node-2"]
    for asking in pods:
        assert _heard(cluster, asking) == set(pods), "a service sends to pods of both nodes"
        addresses = _exec(cluster, asking, LOOK_UP, "each.default.svc.cluster.local")
        assert addresses == {address for _, address in pods.values()}, "a headless service names them all"


def test_logs_and_exec_reach_pods_of_both_nodes(cluster: RunningCluster) -> None:
    for pod in _pods(cluster):
        assert f"serving on {pod}" in cluster.kubectl("logs", pod).stdout
        result = cluster.kubectl("exec", "-i", pod, "--", "sh", "-c", "cat; exit 7", code=7, stdin="heard")
        assert result.stdout == "heard"


def test_port_forward_reaches_a_pod(cluster: RunningCluster) -> None:
    pod = next(iter(_pods(cluster)))
    command = [str(KUBECTL), "--kubeconfig", str(cluster.server.kubeconfig), "port-forward", pod, ":8000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            port = int(forwarding.stdout.readline().split(":")[1].split()[0])
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = connection.makefile().read()
        finally:
            forwarding.kill()
    assert answer.endswith(f"{pod}\n")


def test_services_are_reachable_from_the_host(cluster: RunningCluster) -> None:
    service = cast("dict[str, str]", cluster.get("service", "web")["spec"])
    with socket.create_connection((service["clusterIP"], 80), 10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in connection.recv(4096)


def test_package_runs_in_a_pod_with_the_granted_rights(cluster: RunningCluster) -> None:
    run = ("run", "ours", f"--image={images.ARGOSY}", "--restart=Never", "--rm", "-i", "--quiet", "--")
    assert cluster.kubectl(*run, "argosy", "--version").stdout.startswith("argosy ")
    denied = cluster.kubectl(*run, "kubectl", "get", "pods", code=None)
    assert 'cannot list resource "pods"' in denied.stdout + denied.stderr
    assert "system:serviceaccount:default:default" in denied.stdout + denied.stderr


def test_image_is_pulled_with_policy_always_and_a_missing_one_is_an_error(cluster: RunningCluster) -> None:
    run = ("run", "--image-pull-policy=Always", "--restart=Never", "--command")
    cluster.kubectl(*run, "insists", "--image=local", "--", "true")
    cluster.kubectl(*run, "misses", "--image=nowhere.example/none:1", "--", "true")
    cluster.kubectl(
        "wait", "pod/insists", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", timeout=70
    )
    waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    cluster.kubectl("wait", "pod/misses", f"--for={waiting}=ImagePullBackOff", "--timeout=60s", timeout=70)


def test_audit_log_contains_requests(cluster: RunningCluster) -> None:
    log = (cluster.folder / "logs" / "audit.log").read_text()
    assert '"username":"system:node:node-2"' in log
    assert '"username":"system:kube-scheduler"' in log


def test_settings_of_the_machine_are_unchanged(cluster: RunningCluster) -> None:
    pid = cluster.state.processes["node-1"].pid
    in_node = Path(f"/proc/{pid}/root/proc/sys/vm/overcommit_memory").read_text().strip()
    on_host = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    assert in_node == "1", "a kubelet sets it, and believes that it did"
    assert on_host == _AT_FIRST


def test_second_up_changes_nothing(cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = cluster.state
    cluster.mend()
    assert cluster.state == before
    assert kubernetes.main(["status", "--dir", str(cluster.folder)]) == 0
    assert kubernetes.main(["env", "--dir", str(cluster.folder)]) == 0
    assert capsys.readouterr().out.endswith(f"export KUBECONFIG={cluster.server.kubeconfig}\n")
    other = ["up", "--nodes", "1", "--dir", str(cluster.folder)]
    assert kubernetes.main(other) == 1


def test_up_restarts_killed_programs_with_their_data(cluster: RunningCluster) -> None:
    before = cluster.state.processes
    killed = ("etcd", "kube-apiserver", "coredns", "node-1/containerd", "node-2/kubelet", "node-2/kube-proxy")
    pods = _pods(cluster)
    for name in killed:
        cluster.stop(name)
    assert kubernetes.main(["status", "--dir", str(cluster.folder)]) == 3
    cluster.mend()
    after = cluster.state.processes
    assert {name for name in before if before[name] != after[name]} == set(killed)
    assert _pods(cluster) == pods, "the pods did not notice"
    retry_until(lambda: all(_heard(cluster, pod) == set(pods) for pod in pods))


def test_powered_off_node_becomes_not_ready_and_recovers(cluster: RunningCluster) -> None:
    cluster.power_off("node-2")
    cluster.kubectl("wait", "node/node-2", "--for=condition=Ready=Unknown", "--timeout=60s", timeout=70)
    cluster.mend()
    cluster.kubectl("wait", "node/node-2", "--for=condition=Ready=True", "--timeout=60s", timeout=70)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    retry_until(lambda: all(_heard(cluster, pod) == set(_pods(cluster)) for pod in _pods(cluster)))


def test_down_after_a_killed_up_leaves_nothing_behind(cluster_programs: Programs) -> None:
    with TemporaryDirectory(prefix="argosy-") as parent:
        folder = Path(parent) / "cluster"
        up = commands.module("tests.support.kubernetes", "up", "--dir", str(folder))
        for sign in ("logs/etcd.log", "node-1/machine.json", "logs/node-1-containerd.log"):
            with subprocess.Popen(up, env=commands.module_environment(), start_new_session=True) as starting:
                retry_until((folder / sign).exists)
                os.killpg(starting.pid, signal.SIGKILL)
            # Without the notes, what runs must be found all the same.
            (folder / "cluster.json").unlink(missing_ok=True)
            lifecycle.down(folder)
            assert not folder.exists()
            assert not strays(folder)
        retry_until(lambda: not _mentioning(folder), 60)


def test_cluster_ends_with_its_owner_process(cluster_programs: Programs) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from tests.support.cluster.components import Settings
from tests.support.cluster.running import RunningCluster
RunningCluster.up(Path(sys.argv[1]), Settings("1.36"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    with TemporaryDirectory(prefix="argosy-") as parent:
        folder = Path(parent) / "cluster"
        ended = subprocess.run(
            [sys.executable, "-c", program, str(folder)], env=commands.module_environment(), check=False
        )
        assert ended.returncode == -signal.SIGKILL
        retry_until(lambda: not folder.exists())
        retry_until(lambda: not _mentioning(folder), 60)


@pytest.mark.parametrize("cluster_programs", [minor for minor in minors() if minor != DEFAULT], indirect=True)
def test_other_kubernetes_version_runs_pods(cluster_programs: Programs) -> None:
    with TemporaryDirectory(prefix="argosy-") as parent:
        folder = Path(parent) / "cluster"
        try:
            cluster = RunningCluster.up(folder, Settings(cluster_programs.minor))
            version = cluster.kubectl("get", "--raw", "/version").stdout
            assert f'"gitVersion": "v{cluster_programs.version}"' in version
            node_info = cast("dict[str, dict[str, str]]", cluster.get("node", "node-1")["status"])["nodeInfo"]
            assert node_info["kubeletVersion"] == f"v{cluster_programs.version}"
            cluster.kubectl("apply", "-f", "-", stdin=MANIFEST)
            cluster.kubectl("scale", "deployment/web", "--replicas=1")
            cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s", timeout=100)
            assert _heard(cluster, next(iter(_pods(cluster)))) == set(_pods(cluster))
        finally:
            lifecycle.down(folder)


def _mentioning(folder: Path) -> list[str]:
    """The command lines of all processes that have this folder as an argument."""
    commands = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"{folder}/".encode() in words:
            commands.append(words.decode(errors="replace"))
    return commands


_AT_FIRST = Path("/proc/sys/vm/overcommit_memory").read_text().strip()


def _pods(cluster: RunningCluster) -> dict[str, tuple[str, str]]:
    """The node and the address of each pod of the Deployment."""
    pods = {}
    for pod in cast("list[dict[str, dict[str, str]]]", cluster.get("pods", "-l", "app=web")["items"]):
        if "deletionTimestamp" not in pod["metadata"]:
            pods[pod["metadata"]["name"]] = (pod["spec"]["nodeName"], pod["status"]["podIP"])
    return pods


def _heard(cluster: RunningCluster, pod: str) -> set[str]:
    """The names of the pods that answer to the service's name, asked from within a pod."""
    return _exec(cluster, pod, FETCH, "http://web")


def _exec(cluster: RunningCluster, pod: str, program: str, argument: str) -> set[str]:
    return set(cluster.kubectl("exec", pod, "--", "python3", "-c", program, argument).stdout.split())
