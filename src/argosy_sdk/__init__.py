"""Checkpoints for training code, with the standard library only.

A training loop that survives preemption, on one process or many:

    from argosy_sdk import agree, due, latest, saving

    folder = agree(latest())                      # None at the first start
    step = load(folder) if folder else 0
    while step < STEPS:
        step += 1
        train_one_step()
        if agree(due(step)):
            with saving(step) as folder:
                save_model(folder / "model.pt")

Outside of Argosy it does the same in the folder ARGOSY_CHECKPOINT_DIR, with the interval
ARGOSY_CHECKPOINT_INTERVAL (seconds). Without these variables nothing is saved and nothing fails.
"""

from pathlib import Path
from typing import Callable, ContextManager, Optional

from argosy_sdk.agreement import agree
from argosy_sdk.errors import CheckpointError
from argosy_sdk.orders import Order
from argosy_sdk.session import Session

__all__ = [
    "CheckpointError",
    "Order",
    "agree",
    "due",
    "latest",
    "on_notice",
    "open_order",
    "saving",
    "should_stop",
]

_SESSION = Session()


def latest() -> Optional[Path]:
    """Return the folder of the newest checkpoint that verifies, or None if there is none.

    Call it once, before the first `saving`: it also removes what an earlier process left unfinished. With
    several processes rank 0 checks every file and the others check their own, so use `agree(latest())`:

        folder = agree(latest())
        if folder is not None:
            model.load_state_dict(torch.load(folder / "model.pt"))
    """
    return _SESSION.latest()


def due(step: int) -> bool:
    """Return True if a checkpoint should be saved after this step.

    That is when the interval has passed since the last one, or a checkpoint was ordered, for example because
    the machine is taken away. Processes may disagree for a moment, so ask rank 0:

        if agree(due(step)):
            with saving(step) as folder:
                ...
    """
    return _SESSION.due(step)


def saving(
    step: int, rank: Optional[int] = None, world: Optional[int] = None, timeout: float = 600.0
) -> ContextManager[Path]:
    """Save a checkpoint: write files into the folder that this context manager yields.

    All processes enter it with the same step and write into the same folder; each computes the digests of
    files named `rank-<its rank>…`, and rank 0 those of all others. The checkpoint exists when the block has
    ended on all ranks, or not at all: then `CheckpointError` is raised and the last checkpoint stays usable.
    `rank` and `world` are found in the environment of torchrun, MPI, JAX and TensorFlow.

        with saving(step) as folder:
            torch.save(model.state_dict(), folder / f"rank-{rank}.pt")

    `timeout` is how many seconds a rank waits for the others.
    """
    return _SESSION.saving(step, rank, world, timeout)


def open_order() -> Optional[Order]:
    """Return the order to save that was not answered yet, or None.

    `due` includes it. It tells why and until when, for a program that shortens its work:

        order = open_order()
        if order is not None and order.by is not None:
            print("a checkpoint must be complete at", order.by)
    """
    return _SESSION.open_order()


def should_stop() -> bool:
    """Return True if a checkpoint was saved because this pod ends: every further step would be lost.

    Ask after each step. That the pod ends may become known only after the checkpoint was ordered or saved.
    Do not exit: the pod is ended from outside.

        while should_stop():
            time.sleep(1)
    """
    return _SESSION.should_stop()


def on_notice(callback: Callable[[Order], None]) -> None:
    """Call a function once for each new order, in a thread, within 0.2 seconds.

    For loops with steps of minutes, which `due` would leave uninformed until the end of a step. Call it in
    the main thread; the callback should only set a flag:

        hurry = threading.Event()
        on_notice(lambda order: hurry.set())
    """
    _SESSION.on_notice(callback)
