"""kubectl against the whole control plane, with real pods behind it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.testing.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_TALKER = """
apiVersion: v1
kind: Pod
metadata: {name: talker, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: before, image: local, command: [sh, -c, "echo from before"]}
  containers:
  - name: first
    image: local
    command: [sh, -c, 'for i in 1 2 3 4 5; do echo line $i; done; echo to stderr >&2; exec sleep 600']
  - name: second
    image: local
    command: [sh, -c, 'echo from second; exec sleep 600']
"""


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with one talkative pod in it."""
    plane.kubectl("apply", "-f", "-", stdin=_TALKER)
    plane.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=20s")
    yield plane
    plane.kubectl("delete", "pod", "talker", "--ignore-not-found")


LOGS = {
    "all of a container": (("-c", "first"), "line 1\nline 2\nline 3\nline 4\nline 5\nto stderr\n"),
    "the last lines": (("-c", "first", "--tail", "2"), "line 5\nto stderr\n"),
    "the other container": (("-c", "second"), "from second\n"),
    "an init container": (("-c", "before"), "from before\n"),
}


@pytest.mark.parametrize(("words", "want"), LOGS.values(), ids=LOGS.keys())
def test_logs(cluster: ControlPlane, words: tuple[str, ...], want: str) -> None:
    assert cluster.kubectl("logs", "talker", *words).stdout == want


def test_logs_of_a_container_that_is_not_there_are_refused(cluster: ControlPlane) -> None:
    refused = cluster.kubectl("logs", "talker", "-c", "third", code=1)
    assert "container third is not valid for pod talker" in refused.stderr


def test_logs_are_followed_until_the_container_ends(cluster: ControlPlane) -> None:
    cluster.kubectl(
        "run",
        "counter",
        "--image=local",
        "--restart=Never",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3; do echo $i; sleep 0.3; done",
    )
    cluster.kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].state}", "pod/counter", "--timeout=20s"
    )
    assert cluster.kubectl("logs", "-f", "counter").stdout == "1\n2\n3\n"
    cluster.kubectl("delete", "pod", "counter", "--now")


def test_logs_of_the_container_before_the_restart(cluster: ControlPlane) -> None:
    again = "if [ -e /data/again ]; then echo second life; exec sleep 600; fi"
    script = f"{again}; touch /data/again; echo first life; exit 3"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "lives"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {
                    "name": "main",
                    "image": "local",
                    "command": ["sh", "-c", script],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    cluster.kubectl("wait", restarted, "pod/lives", "--timeout=40s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/lives", "--timeout=20s")
    assert cluster.kubectl("logs", "lives", "--previous").stdout == "first life\n"
    assert cluster.kubectl("logs", "lives").stdout == "second life\n"
    code = cluster.kubectl(
        "get", "pod", "lives", "-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}"
    )
    assert code.stdout == "3"
    cluster.kubectl("delete", "pod", "lives")


def test_exec_gives_output_and_exit_code(cluster: ControlPlane) -> None:
    done = cluster.kubectl(
        "exec", "talker", "-c", "first", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7
    )
    assert (done.stdout, done.stderr.splitlines()[0]) == ("out\n", "err")


def test_exec_passes_stdin(cluster: ControlPlane) -> None:
    done = cluster.kubectl(
        "exec", "-i", "talker", "-c", "first", "--", "tr", "a-z", "A-Z", stdin="some words"
    )
    assert done.stdout == "SOME WORDS"


def test_exec_of_a_program_that_is_not_there(cluster: ControlPlane) -> None:
    done = cluster.kubectl("exec", "talker", "-c", "first", "--", "/no/such/program", code=None)
    assert done.returncode != 0
    assert "/no/such/program" in done.stderr


def test_exec_with_a_terminal(cluster: ControlPlane) -> None:
    # The size follows the start of the command in a message of its own, as with any cluster.
    inside = "sh -c 'test -t 0 && until stty size | grep 33; do sleep 0.1; done'"
    command = f"kubectl --kubeconfig {cluster.state.kubeconfig} exec -it talker -c first -- {inside}"
    done = subprocess.run(
        ["script", "-qec", f"stty rows 33 cols 77; {command}", "/dev/null"],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "33 77" in done.stdout


def test_cp_both_ways(cluster: ControlPlane, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_text("some content\n")
    cluster.kubectl("cp", str(there), "talker:/tmp/copied", "-c", "first")
    assert (
        cluster.kubectl("exec", "talker", "-c", "first", "--", "cat", "/tmp/copied").stdout
        == "some content\n"
    )
    cluster.kubectl("cp", "talker:/tmp/copied", str(back), "-c", "first")
    assert back.read_text() == "some content\n"


def test_get_shows_what_people_know(cluster: ControlPlane) -> None:
    title, row = cluster.kubectl("get", "pod", "talker").stdout.splitlines()
    assert title.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["talker", "2/2", "Running", "0"]
    wide = cluster.kubectl("get", "pod", "talker", "-o", "wide").stdout
    assert " node-" in wide


def test_get_by_label_and_field(cluster: ControlPlane) -> None:
    assert cluster.kubectl("get", "pod", "-l", "app=talker", "-o", "name").stdout == "pod/talker\n"
    found = cluster.kubectl(
        "get", "pod", "--field-selector", "metadata.name=talker,status.phase=Running", "-o", "name"
    )
    assert found.stdout == "pod/talker\n"


def test_describe_tells_the_events(cluster: ControlPlane) -> None:
    said = cluster.kubectl("describe", "pod", "talker").stdout
    assert "Scheduled" in said
    assert "Successfully assigned default/talker to node-" in said


def test_nodes_have_what_was_asked_for(cluster: ControlPlane) -> None:
    found = cluster.kubectl("get", "nodes", "-o", r"jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}")
    assert found.stdout.split() == ["2", "2", "2"]


def test_a_pod_too_large_waits_and_says_why(cluster: ControlPlane) -> None:
    cluster.kubectl("run", "huge", "--image=local", "--overrides", _overrides({"nvidia.com/gpu": "64"}))
    cluster.kubectl("wait", "--for=condition=PodScheduled=False", "pod/huge", "--timeout=10s")
    assert "Insufficient nvidia.com/gpu" in cluster.kubectl("describe", "pod", "huge").stdout
    cluster.kubectl("delete", "pod", "huge")


def test_create_job_runs_it(cluster: ControlPlane) -> None:
    cluster.kubectl("create", "job", "sum", "--image=local", "--", "sh", "-c", "echo $((6 * 7))")
    cluster.kubectl("wait", "--for=condition=complete", "job/sum", "--timeout=30s")
    assert cluster.kubectl("logs", "job/sum").stdout == "42\n"
    cluster.kubectl("delete", "job", "sum")
    cluster.kubectl("wait", "--for=delete", "pod", "-l", "job-name=sum", "--timeout=20s")


def test_a_deployment_rolls_out_and_back(cluster: ControlPlane) -> None:
    def told() -> set[str]:
        return set(cluster.kubectl("logs", "-l", "app=web", "--tail=-1").stdout.split())

    command = ("--", "sh", "-c", "echo ${WORD:-first}; exec sleep 600")
    cluster.kubectl("create", "deployment", "web", "--image=local", "--replicas=2", *command)
    patch = '{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}'
    cluster.kubectl("patch", "deployment", "web", "-p", patch)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    cluster.kubectl("set", "env", "deployment/web", "WORD=second")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    assert "second" in told()
    cluster.kubectl("rollout", "undo", "deployment/web")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout=70)
    assert "first" in told()
    cluster.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s", timeout=70)
    assert cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").stdout == ""


def test_a_deleted_namespace_takes_all_with_it(cluster: ControlPlane) -> None:
    cluster.kubectl("create", "namespace", "passing")
    cluster.kubectl("-n", "passing", "create", "configmap", "a")
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", "passing", "--timeout=10s")
    cluster.kubectl("-n", "passing", "run", "b", "--image=local", "--", "sleep", "600")
    cluster.kubectl("-n", "passing", "wait", "--for=condition=Ready", "pod/b", "--timeout=20s")
    cluster.kubectl("delete", "namespace", "passing", "--timeout=60s", timeout=70)
    assert "NotFound" in cluster.kubectl("get", "namespace", "passing", code=1).stderr


def test_pods_find_each_other_by_service_and_by_name(cluster: ControlPlane) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=_SERVED)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=20s")
    fetch = "import urllib.request; print(urllib.request.urlopen('http://{}', timeout=10).status)"
    for address in (
        "web:80",
        "web.default.svc.cluster.local:80",
        "server.named.default.svc.cluster.local:8000",
    ):
        done = cluster.kubectl(
            "exec", "talker", "-c", "first", "--", "/usr/bin/python3", "-c", fetch.format(address)
        )
        assert done.stdout == "200\n", address
    cluster.kubectl("delete", "-f", "-", stdin=_SERVED)


def test_pods_reach_the_api_server_with_their_own_token(cluster: ControlPlane) -> None:
    done = cluster.kubectl("exec", "talker", "-c", "first", "--", "/usr/bin/python3", "-c", _ASK)
    assert done.stdout.split() == ["403", "system:serviceaccount:default:default"]


def test_pods_cannot_read_what_is_not_theirs(cluster: ControlPlane) -> None:
    state = str(cluster.state.folder)
    for path in (f"{state}/tokens.json", f"{state}/kubeconfig", str(Path.home() / ".ssh")):
        done = cluster.kubectl("exec", "talker", "-c", "first", "--", "ls", path, code=None)
        assert done.returncode != 0, f"{path} can be seen"


def _overrides(limits: dict[str, str]) -> str:
    container = {"name": "huge", "image": "local", "resources": {"limits": limits}}
    return json.dumps({"spec": {"containers": [container]}})


_SERVED = """
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  hostname: server
  subdomain: named
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: local
    command: [/usr/bin/python3, -m, http.server, "8000", --directory, /tmp]
    readinessProbe: {tcpSocket: {port: 8000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8000}]}
---
apiVersion: v1
kind: Service
metadata: {name: named}
spec: {clusterIP: None, selector: {app: server}, ports: [{port: 8000}]}
"""

_ASK = """
import json, ssl, urllib.request, urllib.error
base = '/var/run/secrets/kubernetes.io/serviceaccount/'
request = urllib.request.Request('https://kubernetes.default.svc/api/v1/namespaces/default/secrets')
request.add_header('Authorization', 'Bearer ' + open(base + 'token').read())
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=base + 'ca.crt'), timeout=10)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)['message'].split('"')[1])
"""
