"""Decides which sysctls a pod may set: those that the kubelet allows by default.

All of them belong to the pod's own network or IPC namespace.
"""

from typing import Final

from argosy.local.node.pod_types import Pod

_IPC: Final = frozenset(["kernel.shm_rmid_forced"])
_NETWORK: Final = frozenset(
    [
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    ]
)


class SysctlForbiddenError(Exception):
    """A pod sets a sysctl that is not allowed; the message is the kubelet's."""


def allowed_sysctls(pod: Pod) -> dict[str, str]:
    """Return the pod's kernel parameters by their path below /proc/sys."""
    values = {}
    for entry in pod.spec.security_context.sysctls:
        name = entry.name.replace("/", ".")  # both separators are allowed; no safe name mixes them
        if name not in _IPC | _NETWORK:
            raise SysctlForbiddenError(f'forbidden sysctl: "{entry.name}" not allowlisted')
        if name in _NETWORK and pod.spec.host_network:
            raise SysctlForbiddenError(f'forbidden sysctl: "{entry.name}" not allowed with host net enabled')
        if name in _IPC and pod.spec.host_ipc:
            raise SysctlForbiddenError(f'forbidden sysctl: "{entry.name}" not allowed with host ipc enabled')
        values[name.replace(".", "/")] = entry.value
    return values
