"""kubectl as people use it daily, with real pods behind it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

_TALKER = f"""
apiVersion: v1
kind: Pod
metadata: {{name: talker, labels: {{app: talker}}}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {{name: before, image: {IMAGE}, command: [sh, -c, "echo from before"]}}
  containers:
  - name: first
    image: {IMAGE}
    command: [sh, -c, 'for i in 1 2 3 4 5; do echo line $i; done; exec sleep 600']
  - name: second
    image: {IMAGE}
    command: [sh, -c, 'echo from second >&2; exec sleep 600']
"""


@pytest.fixture(scope="module")
def talking(user: User) -> User:
    """A user with one talkative pod."""
    user.kubectl("apply", "-f", "-", stdin=_TALKER)
    user.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=60s")
    return user


LOGS = {
    "all of a container": (("-c", "first"), "line 1\nline 2\nline 3\nline 4\nline 5\n"),
    "the last lines": (("-c", "first", "--tail", "2"), "line 4\nline 5\n"),
    "the other container": (("-c", "second"), "from second\n"),
    "an init container": (("-c", "before"), "from before\n"),
}


@pytest.mark.parametrize(("words", "want"), LOGS.values(), ids=LOGS.keys())
def test_logs(talking: User, words: tuple[str, ...], want: str) -> None:
    assert talking.kubectl("logs", "talker", *words).stdout == want


def test_logs_of_a_container_that_is_not_there_are_refused(talking: User) -> None:
    refused = talking.kubectl("logs", "talker", "-c", "third", code=1)
    assert "container third is not valid for pod talker" in refused.stderr


def test_logs_are_followed_until_the_container_ends(talking: User) -> None:
    talking.kubectl(
        "run",
        "counter",
        f"--image={IMAGE}",
        "--restart=Never",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3; do echo $i; sleep 0.3; done",
    )
    talking.kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].state}", "pod/counter", "--timeout=60s"
    )
    assert talking.kubectl("logs", "-f", "counter").stdout == "1\n2\n3\n"
    talking.kubectl("delete", "pod", "counter", "--now")


def test_logs_of_the_container_before_the_restart(talking: User) -> None:
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
                    "image": IMAGE,
                    "command": ["sh", "-c", script],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }
    talking.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    talking.kubectl("wait", restarted, "pod/lives", "--timeout=60s")
    talking.kubectl("wait", "--for=condition=Ready", "pod/lives", "--timeout=60s")
    assert talking.kubectl("logs", "lives", "--previous").stdout == "first life\n"
    assert talking.kubectl("logs", "lives").stdout == "second life\n"
    code = talking.kubectl(
        "get", "pod", "lives", "-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}"
    )
    assert code.stdout == "3"
    talking.kubectl("delete", "pod", "lives")


def test_exec_gives_output_and_exit_code(talking: User) -> None:
    done = talking.kubectl(
        "exec", "talker", "-c", "first", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7
    )
    assert (done.stdout, done.stderr.splitlines()[0]) == ("out\n", "err")


def test_exec_passes_stdin(talking: User) -> None:
    done = talking.kubectl(
        "exec", "-i", "talker", "-c", "first", "--", "tr", "a-z", "A-Z", stdin="some words"
    )
    assert done.stdout == "SOME WORDS"


def test_exec_of_a_program_that_is_not_there(talking: User) -> None:
    done = talking.kubectl("exec", "talker", "-c", "first", "--", "/no/such/program", code=None)
    assert done.returncode != 0
    assert "/no/such/program" in done.stderr


def test_exec_with_a_terminal(talking: User) -> None:
    # The size follows the start of the command in a message of its own, as with any talking.
    inside = "sh -c 'test -t 0 && until stty size | grep 33; do sleep 0.1; done'"
    command = f"{' '.join(talking.kubectl_command('exec', '-it', 'talker', '-c', 'first'))} -- {inside}"
    done = subprocess.run(
        ["script", "-qec", f"stty rows 33 cols 77; {command}", "/dev/null"],
        env=talking.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "33 77" in done.stdout


def test_cp_both_ways(talking: User, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_text("some content\n")
    keep = () if os.geteuid() == 0 else ("--no-preserve",)  # without root a pod has one user only
    talking.kubectl("cp", str(there), "talker:/tmp/copied", "-c", "first", *keep)
    assert (
        talking.kubectl("exec", "talker", "-c", "first", "--", "cat", "/tmp/copied").stdout
        == "some content\n"
    )
    talking.kubectl("cp", "talker:/tmp/copied", str(back), "-c", "first")
    assert back.read_text() == "some content\n"


def test_get_shows_what_people_know(talking: User) -> None:
    title, row = talking.kubectl("get", "pod", "talker").stdout.splitlines()
    assert title.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["talker", "2/2", "Running", "0"]
    assert _node(talking) in talking.kubectl("get", "pod", "talker", "-o", "wide").stdout.split()


def test_get_by_label_and_field(talking: User) -> None:
    assert talking.kubectl("get", "pod", "-l", "app=talker", "-o", "name").stdout == "pod/talker\n"
    found = talking.kubectl(
        "get", "pod", "--field-selector", "metadata.name=talker,status.phase=Running", "-o", "name"
    )
    assert found.stdout == "pod/talker\n"


def test_describe_tells_the_events(talking: User) -> None:
    said = talking.kubectl("describe", "pod", "talker").stdout
    assert "Scheduled" in said
    assert f"Successfully assigned {talking.namespace}/talker to {_node(talking)}" in said


def test_a_pod_too_large_waits_and_says_why(talking: User) -> None:
    talking.kubectl("run", "huge", f"--image={IMAGE}", "--overrides", _overrides({"nvidia.com/gpu": "64"}))
    talking.kubectl("wait", "--for=condition=PodScheduled=False", "pod/huge", "--timeout=60s")
    assert "Insufficient nvidia.com/gpu" in talking.kubectl("describe", "pod", "huge").stdout
    talking.kubectl("delete", "pod", "huge")


def test_create_job_runs_it(talking: User) -> None:
    talking.kubectl("create", "job", "sum", f"--image={IMAGE}", "--", "sh", "-c", "echo $((6 * 7))")
    talking.kubectl("wait", "--for=condition=complete", "job/sum", "--timeout=60s")
    assert talking.kubectl("logs", "job/sum").stdout == "42\n"
    talking.kubectl("delete", "job", "sum")
    talking.kubectl("wait", "--for=delete", "pod", "-l", "job-name=sum", "--timeout=60s")


def test_a_deployment_rolls_out_and_back(talking: User) -> None:
    def tells(word: str) -> bool:
        said = talking.kubectl("logs", "-l", "app=web", "--tail=-1", code=None).stdout
        return word in said.split()

    command = ("--", "sh", "-c", "trap exit TERM; echo ${WORD:-first}; sleep 600 & wait")
    talking.kubectl("create", "deployment", "web", f"--image={IMAGE}", "--replicas=2", *command)
    patch = '{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}'
    talking.kubectl("patch", "deployment", "web", "-p", patch)
    talking.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    talking.kubectl("set", "env", "deployment/web", "WORD=second")
    talking.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    wait_for(lambda: tells("second"), "the new pods speak")
    talking.kubectl("rollout", "undo", "deployment/web")
    talking.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    wait_for(lambda: tells("first"), "the old word is back")
    talking.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
    assert talking.kubectl("get", "pods", "-l", "app=web", "-o", "name").stdout == ""


def test_a_deleted_namespace_takes_all_with_it(talking: User) -> None:
    passing = f"{talking.namespace}-passing"
    talking.kubectl("create", "namespace", passing)
    talking.kubectl("-n", passing, "create", "configmap", "a")
    talking.kubectl("wait", "--for=create", "serviceaccount/default", "-n", passing, "--timeout=60s")
    wait = ("sh", "-c", "trap exit TERM; sleep 600 & wait")
    talking.kubectl("-n", passing, "run", "b", f"--image={IMAGE}", "--", *wait)
    talking.kubectl("-n", passing, "wait", "--for=condition=Ready", "pod/b", "--timeout=60s")
    talking.kubectl("delete", "namespace", passing, "--timeout=90s", timeout=100)
    assert "NotFound" in talking.kubectl("get", "namespace", passing, code=1).stderr


def test_pods_find_each_other_by_service_and_by_name(talking: User) -> None:
    talking.kubectl("apply", "-f", "-", stdin=_SERVED)
    talking.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
    fetch = "import urllib.request; print(urllib.request.urlopen('http://{}', timeout=10).status)"
    for address in (
        "web:80",
        f"web.{talking.namespace}.svc.cluster.local:80",
        f"server.named.{talking.namespace}.svc.cluster.local:8000",
    ):
        done = talking.kubectl("exec", "talker", "-c", "first", "--", "python3", "-c", fetch.format(address))
        assert done.stdout == "200\n", address
    talking.kubectl("delete", "-f", "-", stdin=_SERVED)


def test_pods_reach_the_api_server_with_their_own_token(talking: User) -> None:
    ask = _ASK.replace("NAMESPACE", talking.namespace)
    done = talking.kubectl("exec", "talker", "-c", "first", "--", "python3", "-c", ask)
    assert done.stdout.split() == ["403", f"system:serviceaccount:{talking.namespace}:default"]


def _node(user: User) -> str:
    return user.kubectl("get", "pod", "talker", "-o", "jsonpath={.spec.nodeName}").stdout


def _overrides(limits: dict[str, str]) -> str:
    container = {"name": "huge", "image": IMAGE, "resources": {"limits": limits}}
    return json.dumps({"spec": {"containers": [container]}})


_SERVED = f"""
apiVersion: v1
kind: Pod
metadata: {{name: server, labels: {{app: server}}}}
spec:
  hostname: server
  subdomain: named
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    command: [python3, -m, http.server, "8000", --directory, /tmp]
    readinessProbe: {{tcpSocket: {{port: 8000}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: server}}, ports: [{{port: 80, targetPort: 8000}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: named}}
spec: {{clusterIP: None, selector: {{app: server}}, ports: [{{port: 8000}}]}}
"""

_ASK = """
import json, ssl, urllib.request, urllib.error
base = '/var/run/secrets/kubernetes.io/serviceaccount/'
request = urllib.request.Request('https://kubernetes.default.svc/api/v1/namespaces/NAMESPACE/secrets')
request.add_header('Authorization', 'Bearer ' + open(base + 'token').read())
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=base + 'ca.crt'), timeout=10)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)['message'].split('"')[1])
"""
