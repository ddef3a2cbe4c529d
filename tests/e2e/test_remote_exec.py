"""Remote exec as `kubexec.sh` between pods of the local control plane, with the real kubectl.

The launcher has the rights over one worker that the operator would give it. Whatever ends, the other side
ends too; a restart of the API server ends nothing.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from argosy.dialects.et.attach import kubexec_script
from argosy.helper.remote import prepare
from tests.support.commands import KUBECTL
from tests.support.local_control_plane import ControlPlane
from tests.support.targets import LocalTarget
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(240)]

STUBBORN = "trap '' TERM HUP INT; (trap '' TERM HUP INT; setsid sleep 600 &) ; sleep 600 & wait; wait"
"""A command of several processes in two sessions that ignore all signals but SIGKILL."""

IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
DEAF = "trap '' TERM; while :; do sleep 3600; done"
"""An idle pod that ignores the signal by which it is asked to end, as `sleep` does as first process."""

COUNT = """
number=0
until [ -e /dev/shm/end ]; do
    number=$((number + 1))
    echo line $number
    echo error $number >&2
    sleep 0.05
done
echo $number > /dev/shm/number
exit 5
"""


class Pods:
    """A launcher and a worker."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        (folder / "mpi").mkdir()
        (folder / "kube").mkdir()
        script = folder / "mpi" / "kubexec.sh"
        script.write_text(kubexec_script("main"))
        script.chmod(0o755)
        prepare(folder / "kube", str(KUBECTL))

    def create(self, name: str, command: str, grace: int = 30) -> None:
        mounts = {"mpi": "/etc/mpi", "kube": "/opt/kube"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "serviceAccountName": "launcher" if name == "launcher" else "default",
                "terminationGracePeriodSeconds": grace,
                "restartPolicy": "Never",
                "volumes": [
                    {"name": volume, "hostPath": {"path": str(self.folder / volume)}} for volume in mounts
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": "local",
                        "command": ["/bin/sh", "-c", command],
                        "volumeMounts": [
                            {"name": volume, "mountPath": path} for volume, path in mounts.items()
                        ],
                    }
                ],
            },
        }
        self.plane.kubectl("create", "-f", "-", stdin=msgspec.json.encode(pod).decode())
        self.plane.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout=70)

    def run(self, pod: str, command: str) -> str:
        """What a command in a pod prints; empty if it cannot be executed."""
        return self.plane.kubectl("exec", pod, "--", "/bin/sh", "-c", command, code=None).stdout

    def delete(self, name: str, *options: str) -> None:
        self.plane.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=false", *options)

    def start_agent(self, command: str) -> int:
        """Start kubexec.sh in the launcher; returns its PID there as soon as its command runs."""
        words = f"/etc/mpi/kubexec.sh worker {shlex.quote(command)}"
        started = self.run("launcher", f"{{ {words} > /tmp/log 2>&1; echo $? > /tmp/code; }} & echo started")
        assert started == "started\n"
        wait_for(lambda: self.processes("sleep 600") == 2, lambda: self.run("launcher", "cat /tmp/log"))
        pids = self.run("launcher", "pgrep -o -f '^/bin/sh /etc/mpi/kubexec.sh worker '").split()
        assert len(pids) == 1
        return int(pids[0])

    def processes(self, line: str) -> int:
        """How many processes of the worker have this command line; -1 if that cannot be found out."""
        count = self.run("worker", f"ps -eo args= | grep -cx '{line}'").strip()
        return int(count) if count else -1

    def is_clean(self) -> bool:
        return self.processes("sleep 600") == 0 and not self.run("worker", "ls /dev/shm")

    def wait_until_clean(self) -> None:
        wait_for(self.is_clean, lambda: self.run("worker", "ps -eo pid,args; ls /dev/shm"))

    def exit_code(self) -> str:
        """The exit code of kubexec.sh, once it has ended."""
        wait_for(lambda: self.run("launcher", "cat /tmp/code 2> /dev/null"), "kubexec.sh ends")
        return self.run("launcher", "cat /tmp/code").strip()


@pytest.fixture
def pods(plane: ControlPlane, tmp_path: Path) -> Iterator[Pods]:
    made = Pods(plane, tmp_path)
    rules = ("--resource=pods,pods/exec", "--resource-name=worker", "--verb=get,create")
    plane.kubectl("create", "serviceaccount", "launcher")
    plane.kubectl("create", "role", "launcher", *rules)
    plane.kubectl("create", "rolebinding", "launcher", "--role=launcher", "--serviceaccount=default:launcher")
    yield made
    for kind in ("rolebinding/launcher", "role/launcher", "serviceaccount/launcher"):
        plane.kubectl("delete", kind, "--ignore-not-found")
    for name in ("launcher", "worker"):
        made.delete(name, "--grace-period=0", "--force")
    wait_for(lambda: not plane.kubectl("get", "pods", "-o", "name").stdout)


def test_output_is_complete_when_the_api_server_is_killed(pods: Pods) -> None:
    pods.create("worker", IDLE)
    words = f"/etc/mpi/kubexec.sh worker {shlex.quote(COUNT)}"
    pods.create("launcher", f"{words} > /tmp/out 2> /tmp/err; echo $? > /tmp/code; {IDLE}")

    def printed() -> int:
        return int(pods.run("launcher", "cat /tmp/out | wc -l") or 0)

    for _ in range(2):
        before = printed()
        wait_for(lambda before=before: printed() > before + 10)  # type: ignore[misc]
        LocalTarget(pods.plane).kill_apiserver()
    before = printed()
    wait_for(lambda: printed() > before)
    pods.run("worker", "touch /dev/shm/end")
    assert pods.exit_code() == "5"
    last = int(pods.run("worker", "cat /dev/shm/number; rm /dev/shm/end /dev/shm/number"))
    for name, word in (("out", "line"), ("err", "error")):
        got = pods.run("launcher", f"cat /tmp/{name}")
        assert got == "".join(f"{word} {number}\n" for number in range(1, last + 1))
    pods.wait_until_clean()


DELETED: dict[str, tuple[str, ...]] = {"deleted": (), "deleted by force": ("--grace-period=0", "--force")}

KILLED = {
    "agent killed: command ends": "kill -9 {pid}",
    "agent and all its processes killed: command ends": "kill -9 {pid} $(pgrep -P {pid})",
    "agent terminated: command ends": "kill {pid}",
}


@pytest.mark.parametrize("kill", KILLED.values(), ids=KILLED.keys())
def test_case_54_end_of_the_agent_ends_the_command(kill: str, pods: Pods) -> None:
    pods.create("worker", IDLE)
    pods.create("launcher", IDLE)
    pid = pods.start_agent(STUBBORN)
    pods.run("launcher", kill.format(pid=pid))
    pods.wait_until_clean()


def test_killed_connection_does_not_end_the_command(pods: Pods) -> None:
    pods.create("worker", IDLE)
    pods.create("launcher", IDLE)
    until_end = "until [ -e /dev/shm/end ]; do sleep 0.1; done; exit 3"
    pid = pods.start_agent(STUBBORN.replace("wait; wait", until_end))
    pods.run("launcher", f"kill -9 $(pgrep -P {pid} kubectl)")
    wait_for(lambda: pods.run("launcher", f"pgrep -P {pid} kubectl"))
    assert pods.processes("sleep 600") == 2
    pods.run("worker", "touch /dev/shm/end; pkill -KILL -x sleep")
    assert pods.exit_code() == "3"
    pods.run("worker", "rm /dev/shm/end")
    pods.wait_until_clean()


@pytest.mark.parametrize("options", DELETED.values(), ids=DELETED.keys())
def test_deleted_launcher_ends_the_command(options: tuple[str, ...], pods: Pods) -> None:
    pods.create("worker", IDLE)
    pods.create("launcher", IDLE)
    pods.start_agent(STUBBORN)
    pods.delete("launcher", *options)
    pods.wait_until_clean()


@pytest.mark.parametrize("options", DELETED.values(), ids=DELETED.keys())
@pytest.mark.parametrize("idle", [IDLE, DEAF], ids=["idle", "idle and deaf"])
def test_case_54_deleted_worker_ends_the_agent(idle: str, options: tuple[str, ...], pods: Pods) -> None:
    """Also while the worker is terminating: the process that ignores SIGTERM has ten minutes for it."""
    pods.create("worker", idle, grace=600)
    pods.create("launcher", IDLE)
    pods.start_agent(STUBBORN)
    pods.delete("worker", *options)
    assert pods.exit_code() == "255"
    assert "pod worker is" in pods.run("launcher", "cat /tmp/log")


def test_pod_of_another_job_cannot_be_reached(pods: Pods) -> None:
    pods.create("launcher", IDLE)
    output = pods.run("launcher", "/etc/mpi/kubexec.sh other true 2>&1; echo code $?")
    assert "(Forbidden)" in output
    assert output.endswith("code 1\n")
