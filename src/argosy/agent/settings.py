"""Settings of a node agent, with their defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.agent.notices.base import DEFAULT_ENDPOINT
from argosy.checkpoint.backup import DEFAULT_TRUSTED


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The options with which a node agent is started."""

    node: str
    """Name of the Node of this machine."""
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """Only pods and backups of this namespace; None: of all."""
    notices: str = "auto"
    """The cloud that announces the end of the machine: gce, ec2, azure, none, or auto."""
    metadata_endpoint: str = DEFAULT_ENDPOINT
    restore_capability: str = "auto"
    """What can be restored on the node: image, pod, none, or auto."""
    checkpoints: bool = True
    """Whether to make the checkpoints of CheckpointBackups."""
    checkpoint_folder: Path = Path("/var/lib/kubelet/checkpoints")
    """Where the kubelet writes archives."""
    storage_folder: Path = Path("/checkpoint-storage")
    """Where the claim for checkpoints is mounted."""
    kubelet_authority: Path | None = None
    """File with a further CA that the kubelet's certificate may be signed by."""
    plain_http: tuple[str, ...] = ()
    """Registries that are reached without TLS."""
    registry_authority: Path | None = None
    """File with the CA that certificates of registries are signed by; default: those of the system."""
    default_secret: str = "stateful-migration/registry-credentials"  # noqa: S105 - a name
    """Secret with the login of registries for backups that name none, as NAMESPACE/NAME."""
    trusted_namespaces: tuple[str, ...] = DEFAULT_TRUSTED
    """Namespaces whose backups may name pods and Secrets of other namespaces."""
    host_command: tuple[str, ...] = ()
    """What commands are prefixed with so that they run on the host."""
    resume_grace: float = 5.0
    """Seconds for which an agent that starts waits for archives that were in progress when it ended."""
    orphan_delay: float = 5.0
    """Seconds after which an agent looks at a backup whose pod is on no node, at the latest."""
    log_format: Literal["json", "text"] = "json"
    log_level: str = "info"
