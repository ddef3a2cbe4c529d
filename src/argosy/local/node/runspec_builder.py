"""Builds a pod's run spec: resolves every default, reference and path.

Pure except for volumes, whose folders are created. Raises ConfigError for containers that cannot be created
as configured (MissingError if a referenced object does not exist yet) and VolumeError for volumes that cannot
be mounted.
"""

import pwd
import re
import signal
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, cast

from argosy.kinds.quantity import parse_quantity
from argosy.local.node import capabilities, network
from argosy.local.node.checkpoint_images import RestoreSource
from argosy.local.node.environment import ConfigError, Sources, build_command, build_environment
from argosy.local.node.pod_types import Container, Handler, HttpGet, Pod, Probe, TcpSocket, Volume
from argosy.local.node.runspec import (
    Action,
    ContainerConfig,
    ContainerKind,
    MountConfig,
    NetworkConfig,
    ProbeConfig,
    RunSpec,
)
from argosy.local.node.settings import Settings
from argosy.local.node.spawn import DEFAULT_PATH
from argosy.local.node.sysctls import allowed_sysctls
from argosy.local.node.volumes import (
    VolumeError,
    is_written_by_agent,
    prepare_host_path,
    prepare_mount_source,
    validate_path_component,
)

_HIDDEN = ("/home", "/root")
_FIRST_PERSON, _NOBODY = 1000, 65534
_MAIN: ContainerKind = "main"


class Allocation(NamedTuple):
    """The resources of a pod: its folder, address, devices and limits."""

    folder: Path
    address: str
    gpus: dict[str, list[str]]
    """Device nodes by container name."""
    gpu_indexes: dict[str, list[int]]
    claims: Mapping[str, Path]
    """The folder of each claim that the pod mounts."""
    cgroup: str
    restores: Mapping[str, RestoreSource]
    """The checkpoint from which a container starts, by its name."""
    criu: str
    """The folder of CRIU; empty if it is not installed."""


def build_runspec(pod: Pod, allocation: Allocation, sources: Sources, settings: Settings) -> RunSpec:
    mounted = {mount.name for container in pod.every_container for mount in container.volume_mounts}
    memory_volumes = {
        str(allocation.folder / "volumes" / validate_path_component(volume.name)): _size(volume)
        for volume in pod.spec.volumes
        if volume.empty_dir and volume.empty_dir.medium == "Memory" and volume.name in mounted
    }
    containers = [
        *((container, _init_kind(container)) for container in pod.spec.init_containers),
        *((container, _MAIN) for container in pod.spec.containers),
    ]
    return RunSpec(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        hostname=hostname(pod),
        restart_policy=cast("Literal['Always', 'OnFailure', 'Never']", pod.spec.restart_policy),
        grace=pod.spec.termination_grace_period_seconds,
        network=None if pod.spec.host_network else _network(pod, allocation, settings),
        host_ipc=pod.spec.host_ipc,
        share_pids=pod.spec.share_process_namespace,
        address=allocation.address,
        rootless=settings.rootless,
        hidden=hidden_folders(settings.state),
        visible=interpreter_folders(),
        memory_volumes=memory_volumes,
        scratch_volumes=[volume.name for volume in pod.spec.volumes if volume.empty_dir],
        sysctls=allowed_sysctls(pod),
        containers=[
            _container(pod, container, kind, allocation, sources, settings) for container, kind in containers
        ],
        cgroup=allocation.cgroup,
        first_backoff=settings.first_backoff,
        longest_backoff=settings.longest_backoff,
        log_bytes=settings.log_bytes,
        criu=allocation.criu,
    )


def hostname(pod: Pod) -> str:
    """Return the pod's host name, truncated to 63 bytes as the kubelet does."""
    return (pod.spec.hostname or pod.metadata.name)[:63].rstrip("-.")


def hidden_folders(state: Path) -> list[str]:
    """Return the home folders, and the state folder if it is in none of them."""
    folders = [*_HIDDEN, *_other_homes()]
    folders.append(str(state.parent if state.parent.name == "argosy" else state))
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not any(folder.startswith(f"{other}/") for other in kept):
            kept.append(folder)
    return kept


def _other_homes() -> list[str]:
    """Return the homes of users, without system accounts, outside of /home and /root."""
    homes = {str(Path.home())}
    homes |= {user.pw_dir for user in pwd.getpwall() if _FIRST_PERSON <= user.pw_uid < _NOBODY}
    return sorted(home for home in homes if Path(home).is_absolute() and len(Path(home).parts) > 2)


def interpreter_folders() -> list[str]:
    """Return the folders of this Python and of this package, wherever they are installed."""
    package = Path(__file__).resolve().parents[3]
    folders = {str(Path(sys.prefix)), str(Path(sys.base_prefix).resolve()), str(package)}
    folders.add(sysconfig.get_paths()["purelib"])
    return sorted(
        folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)
    )


def volume_folder(volume: Volume, allocation: Allocation) -> Path:
    """Return the host's folder of a volume, creating it if the agent manages it."""
    if volume.host_path:
        return prepare_host_path(volume.host_path)
    if volume.persistent_volume_claim:
        return allocation.claims[volume.persistent_volume_claim.claim_name]
    if not volume.empty_dir and not is_written_by_agent(volume):
        raise VolumeError(
            f'volume "{volume.name}": {volume.unsupported_type or "its type"} is not supported on this node; '
            "supported are configMap, downwardAPI, emptyDir, hostPath, persistentVolumeClaim, projected "
            "and secret"
        )
    folder = allocation.folder / "volumes" / validate_path_component(volume.name)
    folder.mkdir(parents=True, exist_ok=True)
    if volume.empty_dir:
        folder.chmod(0o777)
    return folder


def _init_kind(container: Container) -> ContainerKind:
    return "sidecar" if container.restart_policy == "Always" else "init"


def _network(pod: Pod, allocation: Allocation, settings: Settings) -> NetworkConfig:
    return NetworkConfig(
        bridge=settings.bridge,
        link=network.link_name(pod.metadata.uid),
        address=allocation.address,
        prefix=settings.pod_network.prefixlen,
        gateway=settings.gateway,
        mtu=1500,
    )


def _container(
    pod: Pod,
    container: Container,
    kind: ContainerKind,
    allocation: Allocation,
    sources: Sources,
    settings: Settings,
) -> ContainerConfig:
    values = build_environment(pod, container, sources)
    security, shared = container.security_context, pod.spec.security_context
    uid = _first(security.run_as_user, shared.run_as_user, 0)
    gid = _first(security.run_as_group, shared.run_as_group, 0)
    _check_non_root(pod, container, uid)
    privileged = bool(security.privileged)
    groups = sorted({gid, *shared.supplemental_groups, *([shared.fs_group] if shared.fs_group else [])})
    limits = container.resources.limits
    restore = allocation.restores.get(container.name)
    return ContainerConfig(
        name=validate_path_component(container.name),
        kind=kind,
        root=settings.image_root(restore.image if restore else container.image),
        argv=build_command(container, values) or ["/bin/sh"],
        env=_default_variables(pod, container, allocation) | values,
        cwd=container.working_dir or "/",
        mounts=_mounts(pod, container, allocation, values),
        uid=uid,
        gid=gid,
        groups=groups,
        capabilities=capabilities.effective(security.capabilities.add, security.capabilities.drop),
        privileged=privileged,
        no_new_privileges=security.allow_privilege_escalation is False,
        read_only_root=bool(security.read_only_root_filesystem),
        devices=allocation.gpus.get(container.name, []),
        memory=int(parse_quantity(limits["memory"])) if "memory" in limits else None,
        cpu=int(parse_quantity(limits["cpu"]) * 1000) if "cpu" in limits else None,
        tty=container.tty,
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        message_path=container.termination_message_path,
        message_from_logs=container.termination_message_policy == "FallbackToLogsOnError",
        startup=_probe(container, container.startup_probe),
        readiness=_probe(container, container.readiness_probe),
        liveness=_probe(container, container.liveness_probe),
        post_start=_action(container, container.lifecycle.post_start),
        pre_stop=_action(container, container.lifecycle.pre_stop),
        stop_signal=_signal_number(container.lifecycle.stop_signal),
        restore=str(restore.folder) if restore else "",
    )


def _default_variables(pod: Pod, container: Container, allocation: Allocation) -> dict[str, str]:
    """Return the variables that every container has unless it sets them itself."""
    variables = {"PATH": DEFAULT_PATH, "HOSTNAME": hostname(pod)}
    gpus = allocation.gpu_indexes.get(container.name)
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    if container.tty:
        variables["TERM"] = "xterm"
    return variables


def _check_non_root(pod: Pod, container: Container, uid: int) -> None:
    """Reject containers that would run as root with runAsNonRoot. Images have no user here: it is root."""
    security, shared = container.security_context, pod.spec.security_context
    forbidden = security.run_as_non_root if security.run_as_non_root is not None else shared.run_as_non_root
    if not forbidden or uid != 0:
        return
    chosen = security.run_as_user if security.run_as_user is not None else shared.run_as_user
    problem = (
        "container has runAsNonRoot and image will run as root"
        if chosen is None
        else "container's runAsUser breaks non-root policy"
    )
    meta = pod.metadata
    raise ConfigError(
        f'{problem} (pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name})'
    )


def _mounts(
    pod: Pod, container: Container, allocation: Allocation, values: dict[str, str]
) -> list[MountConfig]:
    """Return the mounts sorted by depth, so that none is covered by the mount around it."""
    if container.volume_devices:
        raise VolumeError(f'container "{container.name}": volumeDevices are not supported on this node')
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounts = []
    for mount in container.volume_mounts:
        volume = volumes[mount.name]
        claim = volume.persistent_volume_claim
        fixed = bool(volume.config_map or volume.secret or volume.projected or volume.downward_api)
        mounts.append(
            MountConfig(
                source=prepare_mount_source(mount, volume_folder(volume, allocation), values),
                target="/" + mount.mount_path.strip("/"),
                read_only=mount.read_only or fixed or bool(claim and claim.read_only),
            )
        )
    return sorted(mounts, key=lambda mount: mount["target"].count("/"))


def _probe(container: Container, probe: Probe | None) -> ProbeConfig | None:
    if probe is None:
        return None
    handler = Handler(exec=probe.exec, http_get=probe.http_get, tcp_socket=probe.tcp_socket)
    action = _action(container, handler)
    if action is None:
        return None
    return ProbeConfig(
        action=action,
        initial_delay=probe.initial_delay_seconds,
        period=probe.period_seconds,
        timeout=probe.timeout_seconds,
        successes=probe.success_threshold,
        failures=probe.failure_threshold,
        grace=probe.termination_grace_period_seconds,
    )


def _action(container: Container, handler: Handler | None) -> Action | None:
    if handler is None:
        return None
    if handler.exec:
        return Action(exec=handler.exec.command)
    if handler.http_get:
        get = handler.http_get
        return Action(
            http={
                "scheme": get.scheme,
                "host": get.host,
                "port": _port(container, get),
                "path": get.path,
                "headers": [(header.name, header.value) for header in get.http_headers],
            }
        )
    if handler.tcp_socket:
        return Action(tcp=(handler.tcp_socket.host, _port(container, handler.tcp_socket)))
    if handler.sleep:
        return Action(sleep=handler.sleep.seconds)
    return None


def _port(container: Container, target: HttpGet | TcpSocket) -> int:
    if isinstance(target.port, int):
        return target.port
    if target.port.isdigit():
        return int(target.port)
    return next((port.container_port for port in container.ports if port.name == target.port), 0)


def _signal_number(name: str) -> int:
    if not re.fullmatch(r"SIG[A-Z0-9+-]+", name):
        return signal.SIGTERM
    return int(getattr(signal, name, signal.SIGTERM))


def _size(volume: Volume) -> int:
    limit = volume.empty_dir.size_limit if volume.empty_dir else None
    return int(parse_quantity(limit)) if limit is not None else 0


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
