"""Settings of the node agent, and values derived from them."""

from ipaddress import IPv4Network
from pathlib import Path

from msgspec import Struct, field


class Settings(Struct, frozen=True):
    state: Path
    nodes: int = 1
    """The number that `argosy up` asked for: each has an equal part of the memory and of the real GPUs."""
    pretend_gpus: int = 0
    """Per node without real ones, unless it was added with another number."""
    images: dict[str, str] = field(default_factory=dict)
    """Root folder by image name."""
    rootless: bool = False
    pod_network: IPv4Network = IPv4Network("10.88.0.0/16")
    pods_per_node: int = 250
    heartbeat: float = 10.0
    first_backoff: float = 10.0
    longest_backoff: float = 300.0
    log_bytes: int = 10 << 20
    log_retention: float = 30.0
    """Seconds for which the logs of a deleted pod are kept, for followers that reconnect."""
    cluster_domain: str = "cluster.local"
    bridge: str = "argosy0"
    """Clusters may use the same name, because each has its own network namespace."""

    @property
    def checkpoints(self) -> Path:
        return self.state / "checkpoints"

    @property
    def gateway(self) -> str:
        return str(self.pod_network.network_address + 1)

    @property
    def pods(self) -> Path:
        return self.state / "pods"

    def image_root(self, image: str) -> str:
        """Return an image's folder by its name with or without tag; the host's root for unknown images."""
        name = image.rpartition(":")[0] if "/" not in image.rpartition(":")[2] else image
        return self.images.get(image) or self.images.get(name) or "/"
