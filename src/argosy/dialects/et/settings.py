"""Settings of the operator for TrainingJobs."""

from msgspec import Struct

from argosy.workload.model import ReplacementBudget


class EtSettings(Struct, frozen=True):
    """What an administrator may configure for TrainingJobs alone."""

    create_ssh_secret: bool = True
    """Whether Secrets with ssh keys are created for jobs that name none."""
    init_container_image: str = "alpine:3.10"
    """Image of the init container that copies the host list; empty: the helper's."""
    below_min_timeout: float = 600.0
    """Seconds for which a job may have fewer running workers than minReplicas."""
    worker_budget: ReplacementBudget = ReplacementBudget(limit=20)
    """How often workers are replaced in a row."""
