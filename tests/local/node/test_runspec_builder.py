"""Tests for the launch record of a pod: unsupported fields, and paths that must not leave the pod folder."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.environment import ConfigError, Sources
from argosy.local.node.pod_types import Pod
from argosy.local.node.runspec import RunSpec
from argosy.local.node.runspec_builder import Allocation, build_runspec
from argosy.local.node.settings import Settings
from argosy.local.node.sysctls import SysctlForbiddenError
from argosy.local.node.volumes import VolumeError


def config(folder: Path, spec: Json, container: Json | None = None) -> RunSpec:
    """Plan a pod of one container `c`."""
    manifest = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i", **(container or {})}], **spec},
        },
        Pod,
    )
    place = Allocation(
        folder=folder / "pod",
        address="10.88.0.9",
        gpus={},
        gpu_indexes={},
        claims={},
        cgroup="",
        restores={},
        criu="",
    )
    sources = Sources(
        config_map=lambda name: None,
        secret=lambda name: None,
        services=(),
        node_name="node-1",
        host_ip="",
        pod_ip="",
        node_allocatable={"cpu": Decimal(1)},
    )
    return build_runspec(manifest, place, sources, Settings(state=folder))


def plan_volume(folder: Path, volume: Json) -> RunSpec:
    mounts: Json = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return config(folder, {"volumes": [{"name": "v", **volume}]}, mounts)


UNSUPPORTED: dict[str, tuple[Json, str]] = {
    "nfs: not supported": ({"nfs": {"server": "files", "path": "/"}}, "nfs"),
    "csi: not supported": ({"csi": {"driver": "d"}}, "csi"),
    "iscsi: not supported": ({"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}}, "iscsi"),
    "image: not supported": ({"image": {"reference": "i"}}, "image"),
    "ephemeral: not supported": ({"ephemeral": {"volumeClaimTemplate": {}}}, "ephemeral"),
    "other volume type: not supported, and not named": (
        {"awsElasticBlockStore": {"volumeID": "v"}},
        "its type",
    ),
}


@pytest.mark.parametrize(("volume", "want"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_volume_of_an_unsupported_type_is_an_error(volume: Json, want: str, tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match=f'volume "v": {want} is not supported on this node; supported are'):
        plan_volume(tmp_path, volume)
    assert list(tmp_path.iterdir()) == []


def test_raw_block_devices_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="volumeDevices are not supported"):
        config(tmp_path, {}, {"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]})


def test_a_volume_name_with_dots_and_slashes_is_rejected(tmp_path: Path) -> None:
    mounts: Json = {"volumeMounts": [{"name": "../v", "mountPath": "/v"}]}
    with pytest.raises(VolumeError, match="invalid name"):
        config(tmp_path, {"volumes": [{"name": "../v", "emptyDir": {}}]}, mounts)
    assert list(tmp_path.iterdir()) == []


FORBIDDEN_SYSCTLS: dict[str, tuple[str, Json, str]] = {
    "path instead of a name: forbidden": ("/etc/crontab", {}, "not allowlisted"),
    "name with dots and slashes: forbidden": ("net/../../../etc/crontab", {}, "not allowlisted"),
    "sysctl of the whole machine: forbidden": ("kernel.core_pattern", {}, "not allowlisted"),
    "namespaced sysctl that kubelets forbid: forbidden": ("net.core.somaxconn", {}, "not allowlisted"),
    "network sysctl with hostNetwork: forbidden": (
        "net.ipv4.tcp_fin_timeout",
        {"hostNetwork": True},
        "not allowed with host net enabled",
    ),
    "shared memory sysctl with hostIPC: forbidden": (
        "kernel.shm_rmid_forced",
        {"hostIPC": True},
        "not allowed with host ipc enabled",
    ),
}


@pytest.mark.parametrize("case", FORBIDDEN_SYSCTLS)
def test_sysctls_outside_of_the_pods_namespaces_are_forbidden(case: str, tmp_path: Path) -> None:
    name, spec, want = FORBIDDEN_SYSCTLS[case]
    with pytest.raises(SysctlForbiddenError, match=f'forbidden sysctl: "{name}" {want}'):
        config(tmp_path, {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, **spec})


def test_safe_sysctls_become_paths_with_either_separator(tmp_path: Path) -> None:
    wanted = [
        {"name": "net.ipv4.tcp_syncookies", "value": "1"},
        {"name": "net/ipv4/tcp_fin_timeout", "value": "9"},
    ]
    runspec = config(tmp_path, {"securityContext": {"sysctls": wanted}})
    assert runspec["sysctls"] == {"net/ipv4/tcp_syncookies": "1", "net/ipv4/tcp_fin_timeout": "9"}


NO_NEW_PRIVILEGES: dict[str, tuple[Json, bool]] = {
    "allowPrivilegeEscalation unset: new privileges allowed": ({}, False),
    "allowPrivilegeEscalation true: new privileges allowed": ({"allowPrivilegeEscalation": True}, False),
    "allowPrivilegeEscalation false: no new privileges": ({"allowPrivilegeEscalation": False}, True),
    "privileged: new privileges allowed": ({"privileged": True}, False),
}


@pytest.mark.parametrize("case", NO_NEW_PRIVILEGES)
def test_no_new_privileges_is_set_without_privilege_escalation(case: str, tmp_path: Path) -> None:
    security, want_none = NO_NEW_PRIVILEGES[case]
    runspec = config(tmp_path, {}, {"securityContext": security})
    assert runspec["containers"][0]["no_new_privileges"] is want_none


_IMAGE_IS_ROOT = 'container has runAsNonRoot and image will run as root (pod: "p_ns(u)", container: c)'
_USER_IS_ROOT = 'container\'s runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)'
NON_ROOT: dict[str, tuple[Json, Json, str]] = {
    "pod with runAsNonRoot without a user: rejected": ({"runAsNonRoot": True}, {}, _IMAGE_IS_ROOT),
    "container with runAsNonRoot without a user: rejected": ({}, {"runAsNonRoot": True}, _IMAGE_IS_ROOT),
    "pod's user is root: rejected": ({"runAsNonRoot": True, "runAsUser": 0}, {}, _USER_IS_ROOT),
    "container's user is root: rejected": (
        {"runAsUser": 7},
        {"runAsNonRoot": True, "runAsUser": 0},
        _USER_IS_ROOT,
    ),
    "pod's user is not root: accepted": ({"runAsNonRoot": True, "runAsUser": 7}, {}, ""),
    "container's user is not root: accepted": ({"runAsNonRoot": True}, {"runAsUser": 7}, ""),
    "container overrides the pod's runAsNonRoot: accepted": (
        {"runAsNonRoot": True},
        {"runAsNonRoot": False},
        "",
    ),
    "no runAsNonRoot: accepted": ({}, {}, ""),
}


@pytest.mark.parametrize("case", NON_ROOT)
def test_run_as_non_root(case: str, tmp_path: Path) -> None:
    of_pod, of_container, want_error = NON_ROOT[case]
    if not want_error:
        config(tmp_path, {"securityContext": of_pod}, {"securityContext": of_container})
        return
    with pytest.raises(ConfigError) as raised:
        config(tmp_path, {"securityContext": of_pod}, {"securityContext": of_container})
    assert str(raised.value) == want_error
