"""The components of a cluster: their commands and configuration files.

Everything listens on the host's address in the cluster or inside a node, nothing on other interfaces of the
machine.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tests.support import commands, servers
from tests.support.assets import Programs
from tests.support.cluster import images, pki, registry
from tests.support.cluster.layout import DOMAIN, Layout
from tests.support.cluster.pki import Identity

_SOCKET: Final = "unix:///run/containerd/containerd.sock"
_GANGS: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true"
"""Enables gang scheduling of Kubernetes, which has this form since 1.36."""


class Settings(Struct, frozen=True):
    """The settings of a cluster."""

    version: str
    nodes: int = 1
    audit: str = ""
    """The level of the audit policy; empty: no audit log."""
    node_grace: int = 0
    """Seconds without a heartbeat after which a node is NotReady; 0: the default of Kubernetes."""
    shown: tuple[str, ...] = ()
    """Folders of the machine that pods may mount, also if they are mount points themselves."""

    @property
    def has_gangs(self) -> bool:
        major, minor = self.version.split(".")[:2]
        return (int(major), int(minor)) >= (1, 36)


def write_identities(layout: Layout, server: str) -> None:
    """Write the certificates and kubeconfigs of all components."""
    identities = {
        "apiserver-kubelet-client": Identity("kube-apiserver-kubelet-client", ("system:masters",)),
        "front-proxy-client": Identity("front-proxy-client"),
        "kube-controller-manager": Identity("system:kube-controller-manager"),
        "kube-scheduler": Identity("system:kube-scheduler"),
        "kube-proxy": Identity("system:kube-proxy"),
        "coredns": Identity("system:coredns"),
    }
    for node in layout.nodes:
        address = layout.node_address(node)
        identities[node] = Identity(f"system:node:{node}", ("system:nodes",), (address,))
    for name, identity in identities.items():
        pki.issue(layout.pki, name, identity)
        pki.kubeconfig(layout.pki, name, server)


def control_plane(layout: Layout, settings: Settings, programs: Programs, port: int) -> dict[str, list[str]]:
    """The commands of the components on the host, in the order of their start."""
    commands = {
        "etcd": servers.etcd_flags(layout.folder),
        "kube-apiserver": (
            *servers.apiserver_flags(layout.folder, layout.host_address, port, str(layout.services)),
            *_apiserver_flags(layout, settings),
        ),
        "kube-controller-manager": _controller_manager_flags(layout, settings),
        "kube-scheduler": _scheduler_flags(layout, settings),
        "coredns": ("-conf", str(layout.folder / "Corefile")),
    }
    return {name: [str(programs.find(name)), *flags] for name, flags in commands.items()}


def image_registry(layout: Layout, archives: Sequence[Path]) -> list[str]:
    """The command of the image registry."""
    place = (layout.host_address, str(registry.PORT))
    return list(commands.module(registry.__name__, *place, *(str(path) for path in archives)))


def node(layout: Layout, name: str, programs: Programs) -> dict[str, list[str]]:
    """The commands of the components in a node, in the order of their start."""
    folder = layout.node_folder(name)
    commands = {
        "containerd": ("--config", str(folder / "containerd.toml")),
        "kubelet": (
            f"--config={folder}/kubelet.json",
            f"--kubeconfig={layout.pki}/{name}.kubeconfig",
            f"--hostname-override={name}",
            f"--node-ip={layout.node_address(name)}",
        ),
        "kube-proxy": (f"--config={folder}/kube-proxy.json", f"--hostname-override={name}"),
    }
    return {part: [str(programs.find(part)), *flags] for part, flags in commands.items()}


def write_host_files(layout: Layout, settings: Settings) -> None:
    (layout.folder / "Corefile").write_text(_corefile(layout))
    url = f"http://{layout.host_address}:{registry.PORT}"
    hosts = layout.folder / "registries" / "_default" / "hosts.toml"
    hosts.parent.mkdir(parents=True, exist_ok=True)
    hosts.write_text(f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n')
    if settings.audit:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": settings.audit}],
        }
        (layout.folder / "audit-policy.json").write_bytes(msgspec.json.encode(policy))


def write_node_files(layout: Layout, settings: Settings, name: str, programs: Programs) -> None:
    folder = layout.node_folder(name)
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd_config(folder, programs))
    for path, content in (
        ("kubelet.json", _kubelet_config(layout, settings, name)),
        ("kube-proxy.json", _proxy_config(layout)),
        ("cni/10-argosy.conflist", _network_config(layout, name)),
    ):
        (folder / path).write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def objects(layout: Layout) -> list[dict[str, object]]:
    """The objects that every cluster needs: the rights, Service and EndpointSlice of the DNS server."""
    meta = {"name": "kube-dns", "namespace": "kube-system"}
    role = {"name": "system:coredns"}
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": role,
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", **role}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "labels": {"k8s-app": "kube-dns"}},
            "spec": {
                "clusterIP": layout.dns_address,
                "ports": [{"name": n, "protocol": p, "port": 53, "targetPort": 53} for n, p in ports],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [layout.host_address], "conditions": {"ready": True}}],
            "ports": [{"name": n, "protocol": p, "port": 53} for n, p in ports],
        },
    ]


def _apiserver_flags(layout: Layout, settings: Settings) -> tuple[str, ...]:
    keys = layout.pki
    flags = (
        f"--client-ca-file={keys}/ca.crt",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        f"--kubelet-client-certificate={keys}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={keys}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={keys}/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys}/front-proxy-client.crt",
        f"--proxy-client-key-file={keys}/front-proxy-client.key",
        # No kube-proxy on the host: webhooks are called at their pods' addresses.
        "--enable-aggregator-routing=true",
    )
    policy = f"--audit-policy-file={layout.folder}/audit-policy.json"
    audit = (policy, f"--audit-log-path={layout.logs}/audit.log") if settings.audit else ()
    gangs = (_GANGS, "--runtime-config=scheduling.k8s.io/v1alpha2=true") if settings.has_gangs else ()
    return (*flags, *gangs, *audit)


def _controller_manager_flags(layout: Layout, settings: Settings) -> tuple[str, ...]:
    keys, own = layout.pki, layout.pki / "kube-controller-manager.kubeconfig"
    flags = (
        f"--kubeconfig={own}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=true",
        f"--root-ca-file={keys}/ca.crt",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        *((_GANGS,) if settings.has_gangs else ()),
    )
    if not settings.node_grace:
        return flags
    return (*flags, f"--node-monitor-grace-period={settings.node_grace}s")


def _scheduler_flags(layout: Layout, settings: Settings) -> tuple[str, ...]:
    own = layout.pki / "kube-scheduler.kubeconfig"
    flags = (f"--kubeconfig={own}", "--leader-elect=false", "--secure-port=0")
    return (*flags, _GANGS) if settings.has_gangs else flags


def _corefile(layout: Layout) -> str:
    return f"""\
.:53 {{
    bind {layout.host_address}
    errors
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {layout.pki}/coredns.kubeconfig
        pods insecure
        ttl 1
    }}
    forward . /etc/resolv.conf
    cache 1
}}
"""


def _containerd_config(folder: Path, programs: Programs) -> str:
    """The configuration of containerd 2; restrict_oom_score_adj is for machines whose root is restricted."""
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = []
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.image-verifier.v1.bindir"]

[plugins."io.containerd.metadata.v1.bolt"]
  no_sync = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{images.PAUSE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{folder.parent}/registries"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_experimental_restore_via_create = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{programs.find("runc")}"
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{programs.find("bridge").parent}"]
    conf_dir = "{folder}/cni"
"""


def _kubelet_config(layout: Layout, settings: Settings, name: str) -> dict[str, object]:
    keys = layout.pki
    # A kubelet renews its lease four times per duration, by default every ten seconds.
    lease = {"nodeLeaseDurationSeconds": settings.node_grace} if settings.node_grace else {}
    return {
        **lease,
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node_address(name),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/{name}.crt",
        "tlsPrivateKeyFile": f"{keys}/{name}.key",
        "containerRuntimeEndpoint": _SOCKET,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": DOMAIN,
        "clusterDNS": [layout.dns_address],
        "makeIPTablesUtilChains": False,
        "maxPods": 250,
        "maxOpenFiles": 20000,
        "serializeImagePulls": False,
        # The nodes share the disk of the machine and must not evict pods or images when it is full.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }


def _proxy_config(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(layout.pods),
        "clientConnection": {"kubeconfig": f"{layout.pki}/kube-proxy.kubeconfig"},
        "nftables": {"minSyncPeriod": "0.1s"},
        # The connection table belongs to the whole machine, so its size is not changed.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _network_config(layout: Layout, name: str) -> dict[str, object]:
    subnet = layout.node_pods(name)
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": str(subnet)}]]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"}
    return {"cniVersion": "1.0.0", "name": "argosy", "plugins": [bridge, ports]}
