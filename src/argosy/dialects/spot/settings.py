"""Defines what administrators can set for SpotInstanceJobs and their VMs."""

from msgspec import Struct


class SpotSettings(Struct, frozen=True):
    """Times are in seconds."""

    join_timeout: float = 900.0
    """Time for a VM to be ready for a Job."""
    max_join_attempts: int = 5
    """VMs that are bought for one incarnation of a replica."""
    pods_ready_grace: float = 120.0
    """Time for the DaemonSets' pods on a new node to be ready."""
    instance_poll: float = 10.0
    """Time between two requests for the VMs of a zone."""
    backup_pickup_timeout: float = 60.0
    """Time for an agent to begin a CheckpointBackup."""
    backup_timeout: float = 600.0
    """Time for a CheckpointBackup to be finished."""
    rescue_timeout: float = 600.0
    """Time for a checkpoint of a surviving replica to be finished before an older one is used."""
    lease_loss_timeout: float = 120.0
    """Time after which a silent node counts as lost."""
    zone_cooldown: float = 600.0
    """Time for which no VM is requested in a zone that had no capacity."""
    quota_cooldown: float = 1800.0
    """Time for which no VM is requested in a region whose quota was exceeded."""
    no_capacity_backoff: float = 60.0
    """Time before the zones are tried again if none is left; doubles up to ten times this."""
    notice_margin: float = 5.0
    """Time before a deadline in which nothing is begun any more."""
    gce_endpoint: str = "https://compute.googleapis.com"
    """URL of the API of GCE. With `http://` no access token is sent."""
    catalog_path: str = ""
    """File with the prices of VMs; empty: none."""
    bootstrap_token_namespaces: str = ""
    """Namespaces, separated by commas, whose VMs may get bootstrap tokens of their own; `*` for all. Whoever
    may create ProvisionedInstances there can let any machine join the cluster."""
    plain_http_registries: str = ""
    """Registries, separated by commas, as host or host:port, that are asked about images without TLS."""
    registry_authority: str = ""
    """File with the CA that certificates of registries are signed by; empty: those of the system."""
    cluster_name: str = ""
    """Name of this cluster in the sourceClusters of StatefulMigrations; empty: its name is not known."""
