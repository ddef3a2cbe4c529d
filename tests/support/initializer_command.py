"""A custom initializer command in the operator's configuration, and an AresJob that checks its arguments."""

from typing import Final

from tests.support.aresjob_runs import run_to_success
from tests.support.targets import IMAGE
from tests.support.user import Json, User

FOLDER: Final = "/var/log"
HOSTS: Final = "/etc/mpi/hostfile"
COMMAND: Final = """grep -q ' FOLDER ' /proc/self/mounts && echo "$GREETING" {{.Namespace}} {{.Name}}
files={{.MPIHostFile}} slots={{.ReplicasPerNode}} mpi={{.MPIImplementation}} &&
exec PYTHON -m argosy.helper cache --key {{.Key}} --cacheURI {{.CacheURI}} --roles {{.Roles}}
--phase {{.RolePhase}} --write-mpi-hostfile-to {{.MPIHostFile}}
--mpi-host-replicas {{.ReplicasPerNode}} --mpi-implementation {{.MPIImplementation}}"""


def settings(python: str) -> Json:
    """The operator's configuration file: the command, an environment variable, and a hostPath volume."""
    common = {
        "cmd": COMMAND.replace("PYTHON", python).replace("FOLDER", FOLDER),
        "envs": {"GREETING": "we wait"},
        "volumes": [{"name": "logs", "hostPath": FOLDER}],
    }
    return {"initializers": {"common": common}}


def check(user: User) -> None:
    """Run a job in which the command waits for a role, and in another role also writes an MPI host file."""
    worker = {"roleNames": ["worker"]}
    roles = {
        "worker": _role("sleep 3"),
        "waiter": _role("true", dependence=worker),
        "launcher": _role(f"cat {HOSTS}", dependence={**worker, "mpiHostFile": HOSTS}),
    }
    spec = {"frameworkType": "custom", "roleSpecs": roles}
    head: Json = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "by-hand"}}
    job = run_to_success(user, {**head, "spec": spec})
    begins = f"we wait {user.namespace} {job}"
    waited, wrote = (
        user.logs(f"{job}-{role}-0", "-c", "initializer").splitlines() for role in ("waiter", "launcher")
    )
    assert waited[0] == f"{begins} files= slots=0 mpi="
    assert wrote[0] == f"{begins} files={HOSTS} slots=1 mpi=ompi"
    address = user.kubectl("get", "pod", f"{job}-worker-0", "-o", "jsonpath={.status.podIP}").stdout
    assert f"{address} slots=1" in user.logs(f"{job}-launcher-0").splitlines()


def _role(script: str, **more: object) -> Json:
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    return {"template": {"spec": {"containers": [main]}}, **more}
