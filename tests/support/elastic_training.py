"""A training whose workers come and go: each computes steps of its own, and worker 0 saves how far all are.

Every step is a line of `computed-INDEX.txt` beside the checkpoints, so what a checkpoint lacks shows. When a
checkpoint is ordered all workers pause until it is saved; one that is asked to stop does not go on. While the
file `hold` exists nothing is saved.
"""

import json
import os
import time
from pathlib import Path

from argosy_sdk import Order, due, open_order, saving

PACE_SECONDS = 0.02


def main() -> None:
    folder, index = Path(os.environ["ARGOSY_CHECKPOINT_DIR"]), int(os.environ["ARGOSY_INDEX"])
    (folder / f"worker-{index}").touch()
    step = done = 0
    with (folder / f"computed-{index}.txt").open("a", buffering=1) as computed:
        while True:
            order = open_order() if due(step) else None
            if order is not None and order.epoch > done and not (folder / "hold").exists():
                answer(folder, index, step, order)
                done = order.epoch
            step += 1
            print(step, file=computed)
            time.sleep(PACE_SECONDS)


def answer(folder: Path, index: int, step: int, order: Order) -> None:
    """Pause until a checkpoint answers the order; for ever if this worker is asked to stop."""
    paused = folder / f"paused-{order.epoch}"
    paused.mkdir(exist_ok=True)
    (paused / str(index)).write_text(str(step))
    while index == 0 and len(list(paused.iterdir())) < len(list(folder.glob("worker-*"))):
        time.sleep(PACE_SECONDS)
    if index == 0:
        with saving(step) as target:
            steps = {path.name: int(path.read_text()) for path in paused.iterdir()}
            (target / "steps.json").write_text(json.dumps(steps))
    while order.stop or not is_saved(folder, order):
        time.sleep(PACE_SECONDS)


def is_saved(folder: Path, order: Order) -> bool:
    manifests = (json.loads(path.read_bytes()) for path in folder.glob("step-*/manifest.json"))
    return any(manifest.get("epoch", 0) >= order.epoch for manifest in manifests)


if __name__ == "__main__":
    main()
