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
from argosy.frameworks.base import Injection
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
chmod 600 {HOSTS_FOLDER}/{HOSTFILE} {DEEPSPEED_FOLDER}/{HOSTFILE}
chmod 755 {HOSTS_FOLDER}/{DISCOVER_HOSTS}
"""

GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
GLOO_TIMEOUT_SECONDS = "120"
"""Longer than a worker takes to start: one that does not answer in this time ends the whole training."""


def inject(workload: Workload, role: Role, index: int, init_image: str) -> Injection:
    """Return what the pod of this replica gets."""
    del index
    volumes, mounts = _ssh_keys(workload) if uses_ssh(workload) else ((), ())
    if role.name != LAUNCHER:
        command = SSHD_COMMAND if uses_ssh(workload) else IDLE_COMMAND
        return Injection(default_command=command, volumes=volumes, mounts=mounts, identity=False)
    env = {GLOO_TIMEOUT: GLOO_TIMEOUT_SECONDS}
    if not uses_ssh(workload):
        env["OMPI_MCA_plm_rsh_agent"] = KUBEXEC_SCRIPT
    return Injection(
        env=env,
        volumes=(*volumes, *_launcher_volumes(workload)),
        mounts=mounts,
        first_container_mounts=_launcher_mounts(workload),
        init_containers=(_init_container(init_image),),
        remote_exec=not uses_ssh(workload),
        remote_volume=KUBECTL_VOLUME,
        remote_folder=KUBECTL_FOLDER,
        force_service_account=True,
        identity=False,
    )


def _ssh_keys(workload: Workload) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    """Return the volume with the job's keys, and the mounts of its files."""
    secret = workload.annotations.get(SSH_SECRET_ANNOTATION) or names.ssh_secret_name(workload.name)
    folder = str(workload.options.get("sshPath", "")).rstrip("/")
    items = [{"key": key, "path": path} for path, key in _SSH_FILES.items()]
    volume = {"name": secret, "secret": {"secretName": secret, "defaultMode": 0o600, "items": items}}
    mounts = tuple(
        {"name": secret, "mountPath": f"{folder}/{path}", "subPath": path, "readOnly": True}
        for path in _SSH_FILES
    )
    return (volume,), mounts


def _launcher_volumes(workload: Workload) -> tuple[Json, ...]:
    host_list = workload.rules.host_list
    files = host_list.files if host_list else ()
    config = {
        "name": names.config_map_name(workload.name),
        "items": [{"key": file.key, "path": file.key, "mode": file.config_map_mode} for file in files],
    }
    volumes: list[Json] = [
        {"name": HOSTS_VOLUME, "emptyDir": {}},
        {"name": DEEPSPEED_VOLUME, "emptyDir": {}},
        {"name": CONFIG_VOLUME, "configMap": config},
    ]
    if uses_ssh(workload):
        volumes.append({"name": KUBECTL_VOLUME, "emptyDir": {}})
    return tuple(volumes)


def _launcher_mounts(workload: Workload) -> tuple[Json, ...]:
    mounts: list[Json] = [
        {"name": HOSTS_VOLUME, "mountPath": HOSTS_FOLDER},
        {"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER},
        {"name": DEEPSPEED_VOLUME, "mountPath": DEEPSPEED_FOLDER},
    ]
    if uses_ssh(workload):
        mounts.append({"name": KUBECTL_VOLUME, "mountPath": KUBECTL_FOLDER})
    return tuple(mounts)


def _init_container(image: str) -> Mapping[str, object]:
    """Return the container that copies the host list from the ConfigMap before the launcher starts."""
    return {
        "name": "init-hostfile",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _COPY],
        "resources": {
            "requests": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"},
            "limits": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"},
        },
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER},
            {"name": HOSTS_VOLUME, "mountPath": HOSTS_FOLDER},
            {"name": DEEPSPEED_VOLUME, "mountPath": DEEPSPEED_FOLDER},
        ],
    }
