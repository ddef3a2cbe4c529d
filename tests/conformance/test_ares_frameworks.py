"""Every framework that AresJob names, as its users run it: real programs in pods with own addresses."""

from collections.abc import Mapping
from typing import cast

import pytest
import yaml

from argosy.reconcile.sshkeys import KEY_FILES
from tests.support import examples, mpi_venvs
from tests.support.aresjob_runs import pod_of, run_to_success
from tests.support.commands import REPOSITORY
from tests.support.mpi_runs import RANKS, template, with_ssh
from tests.support.mpi_venvs import Launcher
from tests.support.parameters import marked
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

LAUNCHERS = {
    name: launcher for name, launcher in mpi_venvs.launchers().items() if launcher.implementation != "intel"
}
EXAMPLES = {path: path for path in examples.ARES}
SSHD = "mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -D -e"
SAMPLES = REPOSITORY / "deploy/ares/config/samples"
ETCD = (
    "etcd",
    "--data-dir=/tmp/etcd",
    "--listen-client-urls=http://0.0.0.0:$(ETCD_CLIENT_PORT)",
    "--advertise-client-urls=http://localhost:$(ETCD_CLIENT_PORT)",
    "--listen-peer-urls=http://localhost:$(ETCD_SERVER_PORT)",
    "--initial-advertise-peer-urls=http://localhost:$(ETCD_SERVER_PORT)",
    "--initial-cluster=default=http://localhost:$(ETCD_SERVER_PORT)",
)
YIELD_WHEN_IDLE = "--mca mpi_yield_when_idle 1"
"""With more ranks than cores, a waiting rank must yield its core."""
SHOWN = "cat /root/.ssh/id_ed25519.pub; stat -Lc '%n %a' /root/.ssh /root/.ssh/*"


@pytest.mark.parametrize("example", marked(EXAMPLES, ["examples/ares/pytorch.yaml"], pytest.mark.long))
def test_example_succeeds_and_prints_the_expected_line(user: User, example: str) -> None:
    examples.require(example)
    place, wanted = examples.ARES[example]
    name = run_to_success(user, examples.manifest(example))
    assert wanted in user.logs(pod_of(user, name, place))
    user.kubectl("delete", "aj", name, "--wait=false")


BAGUA = {
    "static": ("bagua-static-sample", "master-0", "rank 0 of 2 with 5 ports"),
    "elastic": ("bagua-sample", "worker-1", "rank 1 of 2 with 2 ports"),
}


@pytest.mark.long_on_cluster
@pytest.mark.parametrize(("sample", "place", "wanted"), BAGUA.values(), ids=BAGUA.keys())
def test_bagua_sample_succeeds_with_a_stand_in_for_bagua(
    user: User, sample: str, place: str, wanted: str
) -> None:
    """Bagua cannot be installed, so a stand-in runs in its place, with a real etcd."""
    job = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text().replace("${IMAGE}", IMAGE))
    for name, role in job["spec"]["roleSpecs"].items():
        (container,) = role["template"]["spec"]["containers"]
        container["command"] = [*ETCD] if name == "etcd" else ["python", "examples/bagua/meet.py"]
    name_of_job = run_to_success(user, examples.with_mounts(job, "bagua", etcd=True))
    assert wanted in user.logs(pod_of(user, name_of_job, place))
    user.kubectl("delete", "aj", name_of_job, "--wait=false")


@pytest.mark.long
def test_tensorflow_job_succeeds_with_its_chief_while_the_parameter_server_runs(user: User) -> None:
    """jobPhasePolicy succeeded [[chief]] -> the end of the chief decides, not the parameter server."""
    examples.require("examples/tensorflow/ps.yaml")
    role = running("tensorflow", "python", "examples/tensorflow/ps.py")
    spec = {
        "frameworkType": "tensorflow",
        "roleSpecs": dict.fromkeys(("chief", "worker", "ps"), role),
        "jobPhasePolicy": {"succeeded": [["chief"]]},
    }
    name = run_to_success(user, examples.with_mounts(ares_job("ares-ps", spec), "tensorflow"))
    assert "found the slope" in user.logs(pod_of(user, name, "chief-0"))
    user.kubectl("delete", "aj", name, "--wait=false")


HOROVOD = {
    "mpirun": f"exec /usr/bin/mpirun {YIELD_WHEN_IDLE} -x PATH -x OMP_NUM_THREADS=1"
    " python examples/horovod/train.py",
    "horovodrun": "exec horovodrun --gloo -np 3 --hostfile /etc/mpi/hostfile --network-interfaces eth0"
    " python examples/horovod/train.py",
}


@pytest.mark.usefixtures("sshd")
@pytest.mark.long
@pytest.mark.parametrize("launch_command", ["mpirun", "horovodrun"])
def test_55_horovod_starts_every_rank_once(user: User, launch_command: str) -> None:
    """… a Horovod script, under `mpirun` or `horovodrun --hostfile`, sees 3 x slots ranks, each once."""
    examples.require("examples/horovod/mpi.yaml")
    spec = {
        "frameworkType": "mpi",
        "framework": {"mpi": {"sshKeys": True}},
        "roleSpecs": {
            "launcher": running("mpi", "sh", "-c", HOROVOD[launch_command]),
            "worker": {"replicas": 2, **running("mpi", "sh", "-c", SSHD)},
        },
    }
    name = run_to_success(user, examples.with_mounts(ares_job(f"ares-{launch_command}", spec), "horovod"))
    output = user.logs(pod_of(user, name, "launcher-0"), "-c", "mpi")
    hosts = [f"{name}-{place}" for place in ("launcher-0", "worker-0", "worker-1")]
    assert all(f"rank {rank} of 3 on {host}" in output for rank, host in enumerate(hosts)), output
    assert "3 ranks found the slope" in output
    user.kubectl("delete", "aj", name, "--wait=false")


def ares_job(name: str, spec: Mapping[str, object]) -> Json:
    return {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}, "spec": spec}


def running(container: str, *command: str) -> Json:
    """A role whose pods run a command, in a container of this name."""
    main = {"name": container, "image": IMAGE, "command": [*command]}
    return {"template": {"spec": {"containers": [main]}}}


def mpi_job(name: str, launcher: Launcher, script: str, worker: str = SSHD) -> Json:
    with_sshd = with_ssh(launcher)
    options = {"implementation": launcher.implementation, "replicasPerNode": 2, "sshKeys": True}
    roles = {
        "launcher": {"template": template(with_sshd, script, 0)},
        "worker": {"replicas": 2, "template": template(with_sshd, worker, 0)},
    }
    spec = {
        "frameworkType": "mpi",
        "framework": {"mpi": options},
        "roleSpecs": roles,
        "runPolicy": {"cleanPodPolicy": "Running"},
    }
    return ares_job(name, spec)


@pytest.mark.usefixtures("sshd")
@pytest.mark.long_on_cluster
@pytest.mark.parametrize("launcher", marked(LAUNCHERS, ["MPICH"], pytest.mark.long), indirect=True)
def test_55_mpirun_starts_every_rank_once(user: User, launcher: Launcher) -> None:
    """MPI, workers 2, sshd in the image, sshKeys: `mpirun` without host flags sees 3 x slots ranks."""
    options = YIELD_WHEN_IDLE if launcher.implementation == "ompi" else ""
    script = f"exec {launcher.mpirun} {options} {launcher.python} -c '{RANKS}'"
    name = run_to_success(user, mpi_job(f"ssh-{launcher.name}", launcher, script))
    output = user.logs(pod_of(user, name, "launcher-0"), "-c", "main").splitlines()
    hosts = [f"{name}-{place}" for place in ("launcher-0", "worker-0", "worker-1")]
    wanted = [f"rank {rank} of 6 on {hosts[rank // 2]} total 21" for rank in range(6)]
    assert sorted(line for line in output if line.startswith("rank ")) == wanted


def test_ssh_keys_are_generated_once_per_job_and_deleted_with_it(user: User) -> None:
    """Secret <job>-ssh: a replacement pod has the same keys."""
    user.apply(keyed_job("keys"))
    first = wait_for_log_lines(user, "keys", "worker-0", len(KEY_FILES) + 2)
    assert first[0].startswith("ssh-ed25519 ")
    assert first[1:] == [
        "/root/.ssh 755",
        *(f"/root/.ssh/{name} 600" for name in sorted(KEY_FILES)),
    ]
    secret = user.get("secret", "keys-ssh")
    owner = cast("list[Json]", cast("Json", secret["metadata"])["ownerReferences"])[0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("AresJob", "keys", True)
    assert set(cast("Json", secret["data"])) == set(KEY_FILES)
    user.kubectl("delete", pod_of(user, "keys", "worker-0"), "--grace-period=1")
    assert wait_for_log_lines(user, "keys", "worker-0", len(KEY_FILES) + 2) == first
    assert user.get("secret", "keys-ssh")["data"] == secret["data"]
    user.kubectl("delete", "aj", "keys")
    wait_for(lambda: "keys-ssh" not in secrets(user), lambda: secrets(user), 60)


def secrets(user: User) -> str:
    return user.kubectl("get", "secrets", "-o", "name").stdout


def keyed_job(name: str) -> Json:
    role = {"restartPolicy": "Always", **running("main", "/bin/sh", "-c", f"{SHOWN}; exec sleep 600")}
    spec = {
        "frameworkType": "mpi",
        "framework": {"mpi": {"sshKeys": True}},
        "roleSpecs": {"launcher": role, "worker": role},
    }
    return ares_job(name, spec)


def wait_for_log_lines(user: User, job: str, place: str, lines: int) -> list[str]:
    """Wait until the pod of this replica has printed this many lines; returns them."""
    lines_found: list[str] = []

    def output() -> bool:
        pods = user.kubectl("get", "pods", "-o", "name").stdout
        if f"{job}-{place}" not in pods:
            return False
        lines_found[:] = user.kubectl("logs", pod_of(user, job, place), code=None).stdout.splitlines()
        return len(lines_found) >= lines

    wait_for(output, lambda: "\n".join(lines_found), 90)
    return lines_found
