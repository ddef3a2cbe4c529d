"""From a pod to its launch record: what a node does not run, and what must not leave the pod's folder."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.environment import ConfigError, Sources
from argosy.local.node.kinds import Pod
from argosy.local.node.pod_plan import Allocation, build_runspec
from argosy.local.node.runspec import RunSpec
from argosy.local.node.settings import Settings
from argosy.local.node.sysctls import SysctlForbiddenError
from argosy.local.node.volumes import VolumeError


def plan(folder: Path, spec: Json, container: Json | None = None) -> RunSpec:
    """Plan a pod of one container `c`."""
    given = msgspec.convert(
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
    return build_runspec(given, place, sources, Settings(state=folder))


def plan_volume(folder: Path, volume: Json) -> RunSpec:
    mounts: Json = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return plan(folder, {"volumes": [{"name": "v", **volume}]}, mounts)


UNSUPPORTED: dict[str, Json] = {
    "nfs": {"nfs": {"server": "files", "path": "/"}},
    "csi": {"csi": {"driver": "d"}},
    "iscsi": {"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}},
    "image": {"image": {"reference": "i"}},
    "ephemeral": {"ephemeral": {"volumeClaimTemplate": {}}},
    "awsElasticBlockStore": {"awsElasticBlockStore": {"volumeID": "v"}},
    "its type": {"somethingNew": {}},
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_a_volume_of_a_type_that_is_not_supported_is_an_error_and_no_empty_folder(
    kind: str, tmp_path: Path
) -> None:
    with pytest.raises(VolumeError, match=f'volume "v": {kind} is not supported on this node; supported are'):
        plan_volume(tmp_path, UNSUPPORTED[kind])
    assert list(tmp_path.iterdir()) == []


def test_raw_block_devices_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="volumeDevices are not supported"):
        plan(tmp_path, {}, {"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]})


NAMES: dict[str, Json] = {
    "a volume name that climbs out": {"name": "../v", "emptyDir": {}},
}


@pytest.mark.parametrize("sentence", NAMES)
def test_names_cannot_lead_out_of_the_folder(sentence: str, tmp_path: Path) -> None:
    volume: Json = {"name": "v", **NAMES[sentence]}
    mounts: Json = {"volumeMounts": [{"name": volume["name"], "mountPath": "/v"}]}
    with pytest.raises(VolumeError, match="invalid name"):
        plan(tmp_path, {"volumes": [volume]}, mounts)
    assert list(tmp_path.iterdir()) == []


FORBIDDEN_SYSCTLS: dict[str, tuple[str, Json, str]] = {
    "a path of the host": ("/etc/crontab", {}, "not allowlisted"),
    "a path that climbs out": ("net/../../../etc/crontab", {}, "not allowlisted"),
    "one of the whole machine": ("kernel.core_pattern", {}, "not allowlisted"),
    "a namespaced one that kubelets forbid": ("net.core.somaxconn", {}, "not allowlisted"),
    "one of the network, on the host's": (
        "net.ipv4.tcp_fin_timeout",
        {"hostNetwork": True},
        "not allowed with host net enabled",
    ),
    "one of shared memory, with the host's": (
        "kernel.shm_rmid_forced",
        {"hostIPC": True},
        "not allowed with host ipc enabled",
    ),
}


@pytest.mark.parametrize("sentence", FORBIDDEN_SYSCTLS)
def test_a_kernel_parameter_that_is_not_the_pods_own_is_forbidden(sentence: str, tmp_path: Path) -> None:
    name, spec, want = FORBIDDEN_SYSCTLS[sentence]
    with pytest.raises(SysctlForbiddenError, match=f'forbidden sysctl: "{name}" {want}'):
        plan(tmp_path, {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, **spec})


def test_safe_kernel_parameters_become_paths_whatever_their_separator(tmp_path: Path) -> None:
    wanted = [
        {"name": "net.ipv4.tcp_syncookies", "value": "1"},
        {"name": "net/ipv4/tcp_fin_timeout", "value": "9"},
    ]
    runspec = plan(tmp_path, {"securityContext": {"sysctls": wanted}})
    assert runspec["sysctls"] == {"net/ipv4/tcp_syncookies": "1", "net/ipv4/tcp_fin_timeout": "9"}


ESCALATION: dict[str, tuple[Json, bool]] = {
    "allowPrivilegeEscalation unset: allowed": ({}, False),
    "allowPrivilegeEscalation true: allowed": ({"allowPrivilegeEscalation": True}, False),
    "allowPrivilegeEscalation false: no new privileges": ({"allowPrivilegeEscalation": False}, True),
    "privileged: allowed": ({"privileged": True}, False),
}


@pytest.mark.parametrize("sentence", ESCALATION)
def test_new_privileges(sentence: str, tmp_path: Path) -> None:
    security, want_none = ESCALATION[sentence]
    runspec = plan(tmp_path, {}, {"securityContext": security})
    assert runspec["containers"][0]["no_new_privileges"] is want_none


_IMAGE_IS_ROOT = 'container has runAsNonRoot and image will run as root (pod: "p_ns(u)", container: c)'
_USER_IS_ROOT = 'container\'s runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)'
NON_ROOT: dict[str, tuple[Json, Json, str]] = {
    "no user given: the image's is root": ({"runAsNonRoot": True}, {}, _IMAGE_IS_ROOT),
    "the container forbids root, no user given": ({}, {"runAsNonRoot": True}, _IMAGE_IS_ROOT),
    "the pod's user is root": ({"runAsNonRoot": True, "runAsUser": 0}, {}, _USER_IS_ROOT),
    "the container's user is root": ({"runAsUser": 7}, {"runAsNonRoot": True, "runAsUser": 0}, _USER_IS_ROOT),
    "the pod's user is another": ({"runAsNonRoot": True, "runAsUser": 7}, {}, ""),
    "the container's user is another": ({"runAsNonRoot": True}, {"runAsUser": 7}, ""),
    "the container allows what the pod forbids": ({"runAsNonRoot": True}, {"runAsNonRoot": False}, ""),
    "nobody forbids root": ({}, {}, ""),
}


@pytest.mark.parametrize("sentence", NON_ROOT)
def test_run_as_non_root(sentence: str, tmp_path: Path) -> None:
    of_pod, of_container, want_error = NON_ROOT[sentence]
    if not want_error:
        plan(tmp_path, {"securityContext": of_pod}, {"securityContext": of_container})
        return
    with pytest.raises(ConfigError) as raised:
        plan(tmp_path, {"securityContext": of_pod}, {"securityContext": of_container})
    assert str(raised.value) == want_error
