"""Everything about the operator that an administrator may choose.

The command line maps onto it, and so does the file of AresOperator's administrators (`config`): two ways to
write the same settings, of which the command line wins.
"""

import secrets
import socket
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import argosy.helper
from argosy import __version__
from argosy.dialects.apis import APIS
from argosy.dialects.ares.initializers import Initializers
from argosy.engine.limiter import WriteLimits
from argosy.engine.logs import LogFormat
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.operator.apis.ares.observer_locator import ObserverService
from argosy.reconcile.render_context import Helper
from argosy.workload.gang_schedulers.volcano import VOLCANO

NAME = "argosy-operator"
"""Of the Lease, the Service and, with `-tls`, the Secret of an operator that was given no other."""
IMAGE = f"argosy/argosy:{__version__}"
"""Our own image: it runs the operator, and the helper in users' pods."""
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/opt")


@dataclass(frozen=True, kw_only=True)
class Settings:
    kubeconfig: Path | None = None
    """The kubeconfig to use; without one, the pod's own service account, else the user's kubeconfig."""

    context: str | None = None
    """The context in the kubeconfig; without one, its current context."""

    namespace: str | None = None
    """Serve the jobs of this namespace only; without one, those of all namespaces."""

    operator_namespace: str = OPERATOR_NAMESPACE
    """Where the operator keeps what is its own: Lease, keys, Service."""

    name: str = NAME
    """What the Lease, the Service and, with `-tls` and `-observer-tls`, the Secrets of this installation
    are called."""

    observer_service: ObserverService | None = None
    """The observers that answer pods of AresJobs, where those do it in place of the operator."""

    require_observer_tokens: bool = True
    """Tell of AresJobs only to those that have the job's token; clients of the original have none."""

    observer_only: bool = False
    """Only answer pods, by the keys that the operator has made; do nothing else."""

    leader_elect: bool = True
    """Take part in the election of the one replica that acts. Without it this replica acts at once."""

    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{secrets.token_hex(8)}")
    """The name of this replica in the Lease. Random in part: replicas that share a host name and a process id
    (host networking, one container a pod) must not take each other's lease for their own."""

    endpoint: str = "0.0.0.0:8443"
    """Host and port of the endpoint for helpers in pods; empty: none."""

    endpoint_socket: Path | None = None
    """A unix socket for the endpoint instead of `endpoint` (the local control plane relays it to pods)."""

    http_endpoint: str = ""
    """Host and port where the endpoint is served in plain HTTP too, for clients of the original; empty:
    nowhere."""

    max_connections: int = 5000
    """Connections to the endpoint at once. A pod that waits for a role has one."""

    max_connections_per_address: int = 512
    """Those of one address. Behind a node that rewrites addresses (SNAT) all its pods share one."""

    advertise_url: str = ""
    """Under which URL pods reach the endpoint; that of the Service if empty."""

    publish_service: bool = False
    """Make the endpoint's Service at start (local control plane); elsewhere the installation brings it."""

    metrics_address: str = ":8080"
    """Host and port of `/metrics`; empty: none."""

    probe_address: str = ":8081"
    """Host and port of `/healthz` and `/readyz`; empty: none. May be that of the metrics."""

    write_limits: WriteLimits = field(default_factory=WriteLimits)
    """How many writes are sent to the API server at once, and a second."""

    concurrency: int = 32
    """How many jobs are worked on at once."""

    cluster_domain: str = "cluster.local"
    """The cluster's DNS domain."""

    helper: Helper = field(default_factory=lambda: Helper(image=IMAGE))
    """How containers of the helper are made."""

    initializers: Initializers = field(default_factory=Initializers)
    """What is otherwise about those of AresJobs."""

    apis: frozenset[str] = frozenset(APIS)
    """The APIs that are served, by their names in `dialects.registry`."""

    ares_ttl_after_succeeded: float | None = None
    """Seconds after which pods, services and groups of AresJobs that succeeded are deleted."""

    webhooks: str = ""
    """The name of the webhook configurations that ask us about AresJobs; empty: nobody does."""

    gang_backend: str = VOLCANO.name
    """Who places gangs, of `workload.gangs.registry.CHOICES`. Rights are needed over its groups only; with
    `none` over none, and jobs with a gang wait."""

    remote_exec: bool = True
    """Watch and make accounts and roles of launchers. Without them no rights over those, nor over
    `pods/exec`, are needed, and jobs with a launcher wait."""

    ssh_keys: bool = True
    """Make keys for jobs that start processes by ssh. Without them no rights over Secrets of jobs are needed,
    and such jobs wait."""

    log_format: LogFormat = "json"
    """Logs as JSON lines, or as text for people."""

    log_level: str = "info"
    """The least severe level that is logged."""

    @property
    def service(self) -> str:
        """Of the operator's endpoint."""
        return f"{self.name}.{self.operator_namespace}"

    @property
    def secret(self) -> str:
        """The name of the Secret with the operator's credentials."""
        return f"{self.name}-tls"

    @property
    def observer_secret(self) -> str:
        """The name of the Secret with what observers need of them."""
        return f"{self.name}-observer-tls"

    @property
    def url(self) -> str:
        """Where pods find the operator's endpoint."""
        return self.advertise_url or f"https://{self.service}.svc"


def local_settings(state: Path, kubeconfig: Path | None = None) -> Settings:
    """The settings in the local control plane of a state folder: the same operator behind a unix socket."""
    return Settings(
        kubeconfig=kubeconfig or state / "kubeconfigs" / "operator",
        identity="local",  # there is one: started again, it takes its own lease back without waiting
        endpoint="",
        endpoint_socket=state / "operator.sock",
        publish_service=True,
        metrics_address="",
        probe_address="",
        helper=local_helper(),
        log_format="text",
    )


def local_helper() -> Helper:
    """The helper by this interpreter from this installation, mounted into pods where those hide it."""
    import shutil

    package = Path(argosy.helper.__file__).parent
    folders = {
        package.parent.parent,
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sysconfig.get_path("stdlib")),
    }
    beside = Path(sys.executable).with_name("kubectl")
    kubectl = str(beside) if beside.exists() else shutil.which("kubectl") or ""
    if kubectl:
        folders.add(Path(kubectl).resolve().parent)
    return Helper(
        image=IMAGE,
        command=(sys.executable, "-I", str(package / "__main__.py")),
        mounts=tuple(str(folder) for folder in _outermost(folders) if not _is_system(folder)),
        user=None,
        kubectl=kubectl,
    )


def _outermost(folders: set[Path]) -> list[Path]:
    return sorted(folder for folder in folders if not any(other in folder.parents for other in folders))


def _is_system(folder: Path) -> bool:
    return any(folder.is_relative_to(system) for system in _SYSTEM_FOLDERS)
