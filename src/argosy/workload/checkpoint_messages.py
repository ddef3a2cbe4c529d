"""Builds the messages about checkpoints that users read; `messages` has all others."""

from collections.abc import Sequence

from argosy.kinds.quantity import format_duration
from argosy.kinds.text import join_names
from argosy.workload.checkpoint_record import PROCESS, Recovery, SavedCheckpoint, SaveOrder


def late(order: SaveOrder) -> str:
    """An order was not answered in time (CheckpointTimeout); training goes on."""
    seconds = (order.by - order.since).total_seconds()
    return f"no checkpoint within {format_duration(seconds)} after it was ordered ({order.reason})"


def completed(saved: SavedCheckpoint) -> str:
    """A checkpoint is complete (CheckpointCompleted)."""
    took = f" in {format_duration(saved.seconds)}" if saved.seconds >= 1 else ""
    return f"{'processes' if saved.level == PROCESS else f'step {saved.step}'} saved{took}"


def failed(backup: str, message: str) -> str:
    """The node agent could not save the processes (CheckpointFailed); training goes on."""
    return f"CheckpointBackup {backup}: {message}"


def unusable(count: int) -> str:
    """Restored processes have failed repeatedly (CheckpointInvalid), so their image is not used any more."""
    return f"processes that were restored have failed {count} times; the program resumes by itself"


def waiting(reason: str) -> str:
    """A job waits for a checkpoint before its pods are deleted (SavingCheckpoint)."""
    return f"saving a checkpoint ({reason})"


def kept(names: Sequence[str]) -> str:
    """Replicas were to be removed, and a new size keeps them (Resized)."""
    was, are = ("it was", "is") if len(names) == 1 else ("they were", "are")
    why = f"because {was} asked to stop before another new size"
    return f"{join_names(names, max_names=4)} {are} replaced, {why}"


def ordered(order: SaveOrder) -> str:
    """An order is in force (`status.checkpoint.message`)."""
    state = "late" if order.late else f"due by {order.by:%H:%M:%S} UTC"
    return f"ordered at {order.since:%H:%M:%S} UTC ({order.reason}), {state}"


def recovery(recovery: Recovery) -> str:
    """A loss and what became of it (`status.recoveries`)."""
    if recovery.replaced_at is None:
        return "saving a checkpoint" if not recovery.outcome else "no pod was replaced for it"
    return f"{_saved(recovery)}{_start(recovery)}{_lost(recovery)}"


def _saved(recovery: Recovery) -> str:
    if not recovery.was_signalled:
        return "a checkpoint was saved before" if recovery.was_saved else "no checkpoint was saved before"
    if recovery.was_saved:
        return "a checkpoint was saved after SIGTERM"
    if recovery.outcome:
        return "nothing shows that the program saved after SIGTERM"
    return "the program saves when it gets SIGTERM"


def _start(recovery: Recovery) -> str:
    """Return from which checkpoint the new pods have started."""
    last, restored = recovery.saved_step, recovery.restored_step
    if last is None:
        is_unknown = recovery.was_saved or recovery.was_signalled
        return "" if is_unknown else "; there is none to start from"
    if recovery.saved_level == PROCESS:
        return f"; its processes continue from {'it' if recovery.was_saved else 'the last one'}"
    if restored is None:
        return f"; the last one is of step {last}"
    if restored < last:
        return f"; the last one is of step {last}, but it could not be used: back to step {restored}"
    return f"; resumed from step {restored}"


def _lost(recovery: Recovery) -> str:
    if not recovery.steps_lost:
        return ""
    return f"; {recovery.steps_lost} {'step is' if recovery.steps_lost == 1 else 'steps are'} lost"
