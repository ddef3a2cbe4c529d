"""Everything about the operator that an administrator may configure.

The command line sets these values. A configuration file in the format of AresOperator sets them too
(`apis.ares.config`); flags take precedence over it. Settings of one API alone are part of that API's
registration (`Api.settings`).
"""

import secrets
import socket
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import argosy.helper
from argosy import __version__
from argosy.engine.limiter import WriteLimits
from argosy.engine.logs import LogFormat
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.operator.apis.base import Api
from argosy.operator.apis.registry import APIS
from argosy.reconcile.render_context import Helper
from argosy.workload.announcements import NoticeRules
from argosy.workload.gang_schedulers.volcano import VOLCANO
from argosy.workload.quarantine import QuarantineRules

NAME = "argosy-operator"
"""Default name of the Lease and the Service, and prefix of the Secrets' names."""
IMAGE = f"argosy/argosy:{__version__}"
"""Argosy's own image: it runs the operator, and the helper in users' pods."""
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/opt")


@dataclass(frozen=True, kw_only=True)
class Settings:
    kubeconfig: Path | None = None
    """The kubeconfig to use; None: the pod's service account, or the user's kubeconfig outside of a pod."""

    context: str | None = None
    """The context of the kubeconfig; None: its current context."""

    namespace: str | None = None
    """Serve the jobs of this namespace only; None: those of all namespaces."""

    operator_namespace: str = OPERATOR_NAMESPACE
    """Namespace of the operator's own objects: Lease, Secrets, Service."""

    name: str = NAME
    """Name of the operator's Lease and Service, and prefix of its Secrets' names."""

    endpoint_only: bool = False
    """Only answer pods, with credentials that the operator issued; run no controllers."""

    credentials_secret: str = ""
    """The Secret with the endpoint's credentials; empty: `NAME-tls`, which the operator creates itself."""

    leader_elect: bool = True
    """Take part in leader election. If False, this replica runs controllers at once."""

    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{secrets.token_hex(8)}")
    """Name of this replica in the Lease. Partly random: replicas that share a host name and a process id
    (host networking, one container per pod) must not take each other's Lease for their own."""

    endpoint: str = "0.0.0.0:8443"
    """Host and port of the endpoint for pods; empty: none."""

    endpoint_socket: Path | None = None
    """A unix socket for the endpoint instead of `endpoint`; the local control plane relays it to pods."""

    http_endpoint: str = ""
    """Host and port at which the endpoint is served in plain HTTP as well; empty: none."""

    max_connections: int = 5000
    """Simultaneous connections to the endpoint. A pod that waits for a role holds one."""

    max_connections_per_address: int = 512
    """Simultaneous connections from one address. Where nodes rewrite addresses (SNAT), all pods of a node
    share one."""

    advertise_url: str = ""
    """URL at which pods reach the endpoint; empty: that of the Service."""

    publish_service: bool = False
    """Create the endpoint's Service at start (local control plane); elsewhere the chart brings it."""

    metrics_address: str = ":8080"
    """Host and port of `/metrics`; empty: none."""

    probe_address: str = ":8081"
    """Host and port of `/healthz` and `/readyz`; empty: none. May be the same as `metrics_address`."""

    write_limits: WriteLimits = field(default_factory=WriteLimits)
    """Limits of writes to the API server: simultaneous, and per second."""

    concurrency: int = 32
    """Jobs of one namespace and kind that are reconciled at once."""

    cluster_domain: str = "cluster.local"
    """The cluster's DNS domain."""

    helper: Helper = field(default_factory=lambda: Helper(image=IMAGE))
    """How containers of the helper are made."""

    apis: tuple[Api, ...] = APIS
    """The APIs that are served, each with its own settings."""

    webhooks: str = ""
    """Name of the webhook configurations by which the API server asks this operator; empty: none."""

    gang_backend: str = VOLCANO.name
    """The gang scheduler, one of `gang_schedulers.registry.CHOICES`. The operator needs rights over the pod
    groups of that scheduler only. With `none`, jobs with a gang wait."""

    notices: NoticeRules = field(default_factory=NoticeRules)
    """What announces the end of a node."""

    quarantine: QuarantineRules = field(default_factory=QuarantineRules)
    """Which nodes get no new pods for a while."""

    remote_exec: bool = True
    """Watch and create service accounts and roles of launchers. If False, the operator needs no rights over
    these, nor over `pods/exec`, and jobs with a launcher wait."""

    ssh_keys: bool = True
    """Create key pairs for jobs that start processes by ssh. If False, the operator needs no rights over
    Secrets of jobs, and such jobs wait."""

    log_format: LogFormat = "json"
    """JSON lines, or text for people."""

    log_level: str = "info"
    """The least severe level that is logged."""

    @property
    def service(self) -> str:
        """NAME.NAMESPACE of the operator's Service."""
        return f"{self.name}.{self.operator_namespace}"

    @property
    def secret(self) -> str:
        """Name of the Secret with the endpoint's credentials."""
        return self.credentials_secret or f"{self.name}-tls"

    @property
    def url(self) -> str:
        """URL at which pods reach the endpoint."""
        return self.advertise_url or f"https://{self.service}.svc"


def local_settings(state: Path, kubeconfig: Path | None = None) -> Settings:
    """Return the settings for the local control plane of a state folder; pods reach it by a unix socket."""
    return Settings(
        kubeconfig=kubeconfig or state / "kubeconfigs" / "operator",
        identity="local",  # there is one replica: a restarted one takes over its own Lease without waiting
        endpoint="",
        endpoint_socket=state / "operator.sock",
        publish_service=True,
        metrics_address="",
        probe_address="",
        helper=local_helper(),
        log_format="text",
    )


def local_helper() -> Helper:
    """Return a helper that runs from this installation; its folders are mounted where pods hide them."""
    import shutil

    package = Path(argosy.helper.__file__).parent
    folders = {
        package.parent.parent,
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sysconfig.get_path("stdlib")),
    }
    sibling = Path(sys.executable).with_name("kubectl")
    kubectl = str(sibling) if sibling.exists() else shutil.which("kubectl") or ""
    if kubectl:
        folders.add(Path(kubectl).resolve().parent)
    return Helper(
        image=IMAGE,
        command=(sys.executable, "-I", str(package / "__main__.py")),
        store_command=(sys.executable, "-I", "-m", "argosy.checkpoint.sidecar"),
        mounts=tuple(str(folder) for folder in _outermost(folders) if not _is_system(folder)),
        user=None,
        kubectl=kubectl,
    )


def _outermost(folders: set[Path]) -> list[Path]:
    return sorted(folder for folder in folders if not any(other in folder.parents for other in folders))


def _is_system(folder: Path) -> bool:
    return any(folder.is_relative_to(system) for system in _SYSTEM_FOLDERS)
