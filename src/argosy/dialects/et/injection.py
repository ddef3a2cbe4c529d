"""What launcher and workers of a TrainingJob get in addition to their templates [3.3]."""

from collections.abc import Mapping

from argosy.dialects.et import names
from argosy.dialects.et.attach import IDLE_COMMAND, KUBEXEC_SCRIPT, SSHD_COMMAND
from argosy.dialects.et.dialect import uses_ssh
from argosy.dialects.et.files import (
    CONFIG_FOLDER,
    DEEPSPEED_FOLDER,
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    HOSTFILE,
    HOSTS_FOLDER,
    KUBECTL_FOLDER,
)
from argosy.frameworks.base import HostFolders, Injection
from argosy.kinds.trainingjob import LAUNCHER, SSH_SECRET_ANNOTATION
from argosy.workload.model import Json, Role, Workload

HOSTS_VOLUME, CONFIG_VOLUME = "training-job-hostfile", "training-job-config"
KUBECTL_VOLUME, DEEPSPEED_VOLUME = "training-job-kubectl", "deepspeed-hostfile"

_SSH_FILES = {
    "id_rsa": "id_rsa",
    "id_rsa.pub": "id_rsa.pub",
    "authorized_keys": "id_rsa.pub",
    "config": "config",
}
"""Files in the ssh folder, by the key of the Secret."""

_COPY = f"""set -e
cp {CONFIG_FOLDER}/{HOSTFILE} {HOSTS_FOLDER}/{HOSTFILE}
cp {CONFIG_FOLDER}/{DISCOVER_HOSTS} {HOSTS_FOLDER}/{DISCOVER_HOSTS}
cp {CONFIG_FOLDER}/{DEEPSPEED_HOSTFILE} {DEEPSPEED_FOLDER}/{HOSTFILE}
chmod 644 {HOSTS_FOLDER}/{HOSTFILE} {DEEPSPEED_FOLDER}/{HOSTFILE}
chmod 755 {HOSTS_FOLDER}/{DISCOVER_HOSTS}
"""

_OPEN_MPI_AGENT = {
    "OMPI_MCA_plm_rsh_agent": KUBEXEC_SCRIPT,
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "PRTE_MCA_plm_ssh_agent": KUBEXEC_SCRIPT,
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
}
"""Open MPI 4 reads OMPI_…, version 5 PRTE_…. Only the launcher may start processes in other pods, so it
starts all of them itself. Horovod knows the first variable too, with exactly this value."""
_AGENT_VOLUME: Json = {
    "name": "training-job-agent",
    "downwardAPI": {"items": [{"path": "agent", "mode": 0o555, "fieldRef": {"fieldPath": "metadata.name"}}]},
}
_AGENT_MOUNT: Json = {
    "name": "training-job-agent",
    "mountPath": KUBEXEC_SCRIPT,
    "subPath": "agent",
    "readOnly": True,
}
"""An executable file in workers under the name of the agent: daemons of Open MPI 4 exit if there is none,
although they never run it."""

GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
GLOO_TIMEOUT_SECONDS = "120"
"""Longer than a worker takes to start: one that does not answer in this time ends the whole training."""


def inject(workload: Workload, role: Role, index: int, init_image: str) -> Injection:
    """Return what the pod of this replica gets."""
    del index
    volumes, mounts = _ssh_keys(workload, role) if uses_ssh(workload) else ((), ())
    if role.name != LAUNCHER:
        command = SSHD_COMMAND if uses_ssh(workload) else IDLE_COMMAND
        if not uses_ssh(workload):
            volumes, mounts = (_AGENT_VOLUME,), (_AGENT_MOUNT,)
        return Injection(default_command=command, volumes=volumes, mounts=mounts, identity=False)
    env = {GLOO_TIMEOUT: GLOO_TIMEOUT_SECONDS}
    if not uses_ssh(workload):
        env |= _OPEN_MPI_AGENT
    return Injection(
        env=env,
        volumes=(*volumes, *_kubectl_volumes(workload)),
        mounts=mounts,
        first_container_mounts=_kubectl_mounts(workload),
        host_folders=_host_folders(init_image),
        remote_exec=not uses_ssh(workload),
        remote_volume=KUBECTL_VOLUME,
        remote_folder=KUBECTL_FOLDER,
        force_service_account=True,
        identity=False,
    )


def _host_folders(init_image: str) -> HostFolders:
    limits = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    return HostFolders(
        folders={HOSTS_FOLDER: HOSTS_VOLUME, DEEPSPEED_FOLDER: DEEPSPEED_VOLUME},
        config_folder=CONFIG_FOLDER,
        config_volume=CONFIG_VOLUME,
        init_container="init-hostfile",
        init_image=init_image,
        init_command=("sh", "-c", _COPY) if init_image else (),
        init_resources={"requests": limits, "limits": limits} if init_image else {},
    )


def _ssh_keys(workload: Workload, role: Role) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    """Return the volume with the job's keys, and the mounts of its files."""
    secret = workload.annotations.get(SSH_SECRET_ANNOTATION) or names.ssh_secret_name(workload.name)
    folder = str(workload.options.get("sshPath", "")).rstrip("/")
    items = [{"key": key, "path": path} for path, key in _SSH_FILES.items()]
    source = {"secretName": secret, "defaultMode": _key_mode(role, folder), "items": items}
    volume: Json = {"name": secret, "secret": source}
    mounts = tuple(
        {"name": secret, "mountPath": f"{folder}/{path}", "subPath": path, "readOnly": True}
        for path in _SSH_FILES
    )
    return (volume,), mounts


def _key_mode(role: Role, folder: str) -> int:
    """Return the mode of the keys, which belong to root.

    ssh rejects a key of its own user that others may read. Users other than root cannot read one of mode
    0600, and ssh accepts it from them with any mode. Where the template says nothing of the user, the folder
    tells: only root has its keys below /root.
    """
    pod = role.template.get("spec")
    spec = pod if isinstance(pod, Mapping) else {}
    containers = spec.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else {}
    security = {**(spec.get("securityContext") or {}), **(first.get("securityContext") or {})}
    user = security.get("runAsUser")
    if isinstance(user, int):
        return 0o600 if user == 0 else 0o444
    is_root = security.get("runAsNonRoot") is not True and folder.startswith("/root/")
    return 0o600 if is_root else 0o444


def _kubectl_volumes(workload: Workload) -> tuple[Json, ...]:
    """Return the volume for kubectl, which is empty unless it is needed."""
    return ({"name": KUBECTL_VOLUME, "emptyDir": {}},) if uses_ssh(workload) else ()


def _kubectl_mounts(workload: Workload) -> tuple[Json, ...]:
    return ({"name": KUBECTL_VOLUME, "mountPath": KUBECTL_FOLDER},) if uses_ssh(workload) else ()
