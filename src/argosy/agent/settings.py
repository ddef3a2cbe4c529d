"""Settings of a node agent, with their defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.agent.notices.base import DEFAULT_ENDPOINT


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What a node agent is told when it starts."""

    node: str
    """Name of the Node of this machine."""
    kubeconfig: Path | None = None
    context: str | None = None
    notices: str = "auto"
    """The cloud that announces the end of the machine: gce, ec2, azure, none, or auto."""
    metadata_endpoint: str = DEFAULT_ENDPOINT
    log_format: Literal["json", "text"] = "json"
    log_level: str = "info"
