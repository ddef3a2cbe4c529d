"""Sets the condition Ready of CheckpointRestores and StatefulMigrations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from argosy.kinds.status_condition import StatusCondition

READY: Final = "Ready"


def with_ready(
    conditions: Sequence[StatusCondition],
    status: str,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> list[StatusCondition]:
    """Return the conditions with another Ready; its time changes with its status."""
    others = [item for item in conditions if item.type != READY]
    current = next((item for item in conditions if item.type == READY), None)
    keep = current is not None and current.status == status
    since = current.last_transition_time if current is not None and keep else now.replace(microsecond=0)
    return [*others, StatusCondition(READY, status, reason, message, since, generation)]
