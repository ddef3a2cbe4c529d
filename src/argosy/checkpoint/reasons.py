"""Lists the reasons of the condition Ready of CheckpointBackups: those of Kubernetes' PodCheckpoint."""

from typing import Final

from argosy.workload import reasons

CHECKPOINT_IN_PROGRESS: Final = "CheckpointInProgress"
"""The checkpoint is being made, stored or pushed."""
CHECKPOINT_COMPLETED: Final = reasons.CHECKPOINT_COMPLETED
"""The checkpoint is where it belongs."""
CHECKPOINT_FAILED: Final = reasons.CHECKPOINT_FAILED
"""The checkpoint could not be made or pushed; the message says why."""
