"""Real drivers start their processes in the workers of a TrainingJob, by ssh and by kubexec."""

import re

import pytest

from tests.support import examples
from tests.support.attach_jobs import attach_job, launcher_lines, wait_for_end
from tests.support.mpi_venvs import launchers
from tests.support.user import User

MODES = ("ssh", "kubexec")
RANKS = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
line = f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()} total {total}"
os.write(1, f"{line}\\n".encode())
"""
"""Each rank prints its number and its host, in one write: Open MPI mixes the outputs of ranks."""
HOROVOD = (
    "horovodrun -np 2 --min-np 1 --max-np 2 --network-interfaces eth0"
    " --host-discovery-script /etc/edl/discover_hosts.sh python examples/et/train.py"
)


@pytest.mark.usefixtures("sshd")
@pytest.mark.parametrize("mode", MODES)
def test_open_mpi_starts_its_ranks_in_the_workers(mode: str, user: User) -> None:
    launcher = launchers()["Open MPI 4"]
    command = f"{launcher.mpirun} --allow-run-as-root --hostfile /job/hostfile -n 2"
    name = f"ranks-{mode}"
    job = attach_job(name, mode, f"{command} {launcher.python} -c '{RANKS}'")
    user.apply(examples.with_mounts(job, "mpi"))
    assert wait_for_end(user, name) == "Succeeded", launcher_lines(user, name)
    ranks = sorted(line for line in launcher_lines(user, name) if line.startswith("rank "))
    assert ranks == [f"rank {rank} of 2 on {name}-worker-{rank} total 3" for rank in range(2)]


@pytest.mark.long
@pytest.mark.usefixtures("sshd")
@pytest.mark.parametrize("mode", MODES)
def test_horovod_trains_elastically_in_the_workers(mode: str, user: User) -> None:
    examples.require("examples/horovod/mpi.yaml")
    name = f"horovod-{mode}"
    job = attach_job(name, mode, f"STEPS=40 exec {HOROVOD}")
    user.apply(examples.with_mounts(job, "horovod"))
    assert wait_for_end(user, name, 300) == "Succeeded", launcher_lines(user, name)
    output = "\n".join(launcher_lines(user, name))
    hosts = set(re.findall(rf"rank \d of 2 on ({name}-worker-\d) from step 0", output))
    assert hosts == {f"{name}-worker-0", f"{name}-worker-1"}
    assert "2 workers found the slope within" in output


USERS = (
    "root:x:0:0::/root:/bin/sh",
    "sshd:x:102:65534::/run/sshd:/bin/false",
    "me:x:1000:1000::/home/me:/bin/sh",
)
PASSWD = "".join(f"{line}\n" for line in USERS)
SSHD_OF_A_USER = (
    "ssh-keygen -q -t ed25519 -N '' -f /tmp/host_key"
    " && exec /usr/sbin/sshd -D -e -h /tmp/host_key -o UsePAM=no -o PidFile=none"
)


@pytest.mark.usefixtures("sshd")
def test_users_other_than_root_can_use_the_keys_of_the_job(user: User) -> None:
    """Their sshd has a host key and a command of its own."""
    user.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "users"}, "data": {"passwd": PASSWD}}
    )
    hosts = "user-worker-0 user-worker-1"
    command = f"for host in {hosts}; do ssh -q $host id -un || exit 1; done"
    job = attach_job("user", "ssh", command, sshAuthMountPath="/home/me/.ssh")
    job = examples.with_mounts(job, "mpi")
    for role in job["spec"]["etReplicaSpecs"].values():  # type: ignore[index]
        pod = role["template"]["spec"]
        ports = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
        pod["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000, "sysctls": [ports]}
        pod["volumes"].append({"name": "users", "configMap": {"name": "users"}})
        mount = {"name": "users", "mountPath": "/etc/passwd", "subPath": "passwd"}
        pod["containers"][0]["volumeMounts"].append(mount)
    worker = job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["containers"][0]  # type: ignore[index]
    worker["command"] = ["/bin/sh", "-c", SSHD_OF_A_USER]
    user.apply(job)
    assert wait_for_end(user, "user") == "Succeeded", launcher_lines(user, "user")
    assert launcher_lines(user, "user") == ["me", "me"]
