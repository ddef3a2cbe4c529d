"""The everyday kubectl commands, with real pods."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

_POD = f"""
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
def user_with_pod(user: User) -> User:
    """A user with one pod `talker` that prints lines."""
    user.kubectl("apply", "-f", "-", stdin=_POD)
    user.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=60s")
    return user


LOGS = {
    "logs -c first: all lines of the container": (
        ("-c", "first"),
        "line 1\nline 2\nline 3\nline 4\nline 5\n",
    ),
    "logs --tail 2: the last two lines": (("-c", "first", "--tail", "2"), "line 4\nline 5\n"),
    "logs -c of the second container: its stderr": (("-c", "second"), "from second\n"),
    "logs -c of an init container: its lines": (("-c", "before"), "from before\n"),
}


@pytest.mark.parametrize(("words", "want"), LOGS.values(), ids=LOGS.keys())
def test_logs_prints_the_selected_lines(user_with_pod: User, words: tuple[str, ...], want: str) -> None:
    assert user_with_pod.kubectl("logs", "talker", *words).stdout == want


def test_logs_of_an_unknown_container_is_an_error(user_with_pod: User) -> None:
    refused = user_with_pod.kubectl("logs", "talker", "-c", "third", code=1)
    assert "container third is not valid for pod talker" in refused.stderr


def test_logs_follow_ends_with_the_container(user_with_pod: User) -> None:
    user_with_pod.kubectl(
        "run",
        "counter",
        f"--image={IMAGE}",
        "--restart=Never",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3; do echo $i; sleep 0.3; done",
    )
    user_with_pod.kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].state}", "pod/counter", "--timeout=60s"
    )
    assert user_with_pod.kubectl("logs", "-f", "counter").stdout == "1\n2\n3\n"
    user_with_pod.kubectl("delete", "pod", "counter", "--now")


def test_logs_previous_prints_the_log_before_the_restart(user_with_pod: User) -> None:
    second_run = "if [ -e /data/again ]; then echo second life; exec sleep 600; fi"
    script = f"{second_run}; touch /data/again; echo first life; exit 3"
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
    user_with_pod.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    user_with_pod.kubectl("wait", restarted, "pod/lives", "--timeout=60s")
    user_with_pod.kubectl("wait", "--for=condition=Ready", "pod/lives", "--timeout=60s")
    assert user_with_pod.kubectl("logs", "lives", "--previous").stdout == "first life\n"
    assert user_with_pod.kubectl("logs", "lives").stdout == "second life\n"
    code = user_with_pod.kubectl(
        "get", "pod", "lives", "-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}"
    )
    assert code.stdout == "3"
    user_with_pod.kubectl("delete", "pod", "lives")


def test_exec_returns_output_and_exit_code(user_with_pod: User) -> None:
    done = user_with_pod.kubectl(
        "exec", "talker", "-c", "first", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7
    )
    assert (done.stdout, done.stderr.splitlines()[0]) == ("out\n", "err")


def test_exec_passes_stdin(user_with_pod: User) -> None:
    done = user_with_pod.kubectl(
        "exec", "-i", "talker", "-c", "first", "--", "tr", "a-z", "A-Z", stdin="some words"
    )
    assert done.stdout == "SOME WORDS"


def test_exec_of_a_missing_program_names_it(user_with_pod: User) -> None:
    done = user_with_pod.kubectl("exec", "talker", "-c", "first", "--", "/no/such/program", code=None)
    assert done.returncode != 0
    assert "/no/such/program" in done.stderr


def test_exec_with_a_terminal_has_its_size(user_with_pod: User) -> None:
    # kubectl sends the size in a separate message after the start of the command.
    inside = "sh -c 'test -t 0 && until stty size | grep 33; do sleep 0.1; done'"
    command = f"{' '.join(user_with_pod.kubectl_command('exec', '-it', 'talker', '-c', 'first'))} -- {inside}"
    done = subprocess.run(
        ["script", "-qec", f"stty rows 33 cols 77; {command}", "/dev/null"],
        env=user_with_pod.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "33 77" in done.stdout


def test_cp_copies_into_and_out_of_a_pod(user_with_pod: User, tmp_path: Path) -> None:
    source, copy = tmp_path / "there", tmp_path / "back"
    source.write_text("some content\n")
    keep = () if os.geteuid() == 0 else ("--no-preserve",)  # without root a pod has one user only
    user_with_pod.kubectl("cp", str(source), "talker:/tmp/copied", "-c", "first", *keep)
    assert (
        user_with_pod.kubectl("exec", "talker", "-c", "first", "--", "cat", "/tmp/copied").stdout
        == "some content\n"
    )
    user_with_pod.kubectl("cp", "talker:/tmp/copied", str(copy), "-c", "first")
    assert copy.read_text() == "some content\n"


def test_get_pod_prints_the_usual_columns(user_with_pod: User) -> None:
    title, row = user_with_pod.kubectl("get", "pod", "talker").stdout.splitlines()
    assert title.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["talker", "2/2", "Running", "0"]
    assert _node(user_with_pod) in user_with_pod.kubectl("get", "pod", "talker", "-o", "wide").stdout.split()


def test_get_selects_by_label_and_field(user_with_pod: User) -> None:
    assert user_with_pod.kubectl("get", "pod", "-l", "app=talker", "-o", "name").stdout == "pod/talker\n"
    result = user_with_pod.kubectl(
        "get", "pod", "--field-selector", "metadata.name=talker,status.phase=Running", "-o", "name"
    )
    assert result.stdout == "pod/talker\n"


def test_describe_shows_the_events(user_with_pod: User) -> None:
    output = user_with_pod.kubectl("describe", "pod", "talker").stdout
    assert "Scheduled" in output
    assert f"Successfully assigned {user_with_pod.namespace}/talker to {_node(user_with_pod)}" in output


def test_pod_larger_than_every_node_is_pending_with_the_reason(user_with_pod: User) -> None:
    user_with_pod.kubectl(
        "run", "huge", f"--image={IMAGE}", "--overrides", _overrides({"nvidia.com/gpu": "64"})
    )
    user_with_pod.kubectl("wait", "--for=condition=PodScheduled=False", "pod/huge", "--timeout=60s")
    assert "Insufficient nvidia.com/gpu" in user_with_pod.kubectl("describe", "pod", "huge").stdout
    user_with_pod.kubectl("delete", "pod", "huge")


def test_created_job_runs_to_completion(user_with_pod: User) -> None:
    user_with_pod.kubectl("create", "job", "sum", f"--image={IMAGE}", "--", "sh", "-c", "echo $((6 * 7))")
    user_with_pod.kubectl("wait", "--for=condition=complete", "job/sum", "--timeout=60s")
    assert user_with_pod.kubectl("logs", "job/sum").stdout == "42\n"
    user_with_pod.kubectl("delete", "job", "sum")
    user_with_pod.kubectl("wait", "--for=delete", "pod", "-l", "job-name=sum", "--timeout=60s")


def test_deployment_is_rolled_out_and_undone(user_with_pod: User) -> None:
    def logs_contain(word: str) -> bool:
        output = user_with_pod.kubectl("logs", "-l", "app=web", "--tail=-1", code=None).stdout
        return word in output.split()

    command = ("--", "sh", "-c", "trap exit TERM; echo ${WORD:-first}; sleep 600 & wait")
    user_with_pod.kubectl("create", "deployment", "web", f"--image={IMAGE}", "--replicas=2", *command)
    patch = '{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}'
    user_with_pod.kubectl("patch", "deployment", "web", "-p", patch)
    user_with_pod.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    user_with_pod.kubectl("set", "env", "deployment/web", "WORD=second")
    user_with_pod.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    wait_for(lambda: logs_contain("second"), "the new pods print nothing")
    user_with_pod.kubectl("rollout", "undo", "deployment/web")
    user_with_pod.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    wait_for(lambda: logs_contain("first"), "the old revision does not run")
    user_with_pod.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
    assert user_with_pod.kubectl("get", "pods", "-l", "app=web", "-o", "name").stdout == ""


def test_deleted_namespace_is_removed_with_its_objects(user_with_pod: User) -> None:
    extra_namespace = f"{user_with_pod.namespace}-extra"
    user_with_pod.kubectl("create", "namespace", extra_namespace)
    user_with_pod.kubectl("-n", extra_namespace, "create", "configmap", "a")
    user_with_pod.kubectl(
        "wait", "--for=create", "serviceaccount/default", "-n", extra_namespace, "--timeout=60s"
    )
    wait = ("sh", "-c", "trap exit TERM; sleep 600 & wait")
    user_with_pod.kubectl("-n", extra_namespace, "run", "b", f"--image={IMAGE}", "--", *wait)
    user_with_pod.kubectl("-n", extra_namespace, "wait", "--for=condition=Ready", "pod/b", "--timeout=60s")
    user_with_pod.kubectl("delete", "namespace", extra_namespace, "--timeout=90s", timeout=100)
    assert "NotFound" in user_with_pod.kubectl("get", "namespace", extra_namespace, code=1).stderr


def test_pods_reach_a_service_and_a_pod_host_name(user_with_pod: User) -> None:
    user_with_pod.kubectl("apply", "-f", "-", stdin=_SERVED)
    user_with_pod.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
    fetch = "import urllib.request; print(urllib.request.urlopen('http://{}', timeout=10).status)"
    for address in (
        "web:80",
        f"web.{user_with_pod.namespace}.svc.cluster.local:80",
        f"server.named.{user_with_pod.namespace}.svc.cluster.local:8000",
    ):
        done = user_with_pod.kubectl(
            "exec", "talker", "-c", "first", "--", "python3", "-c", fetch.format(address)
        )
        assert done.stdout == "200\n", address
    user_with_pod.kubectl("delete", "-f", "-", stdin=_SERVED)


def test_pod_reaches_the_api_server_with_its_service_account(user_with_pod: User) -> None:
    script = _LIST_SECRETS.replace("NAMESPACE", user_with_pod.namespace)
    done = user_with_pod.kubectl("exec", "talker", "-c", "first", "--", "python3", "-c", script)
    assert done.stdout.split() == ["403", f"system:serviceaccount:{user_with_pod.namespace}:default"]


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

_LIST_SECRETS = """
import json, ssl, urllib.request, urllib.error
base = '/var/run/secrets/kubernetes.io/serviceaccount/'
request = urllib.request.Request('https://kubernetes.default.svc/api/v1/namespaces/NAMESPACE/secrets')
request.add_header('Authorization', 'Bearer ' + open(base + 'token').read())
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=base + 'ca.crt'), timeout=10)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)['message'].split('"')[1])
"""
