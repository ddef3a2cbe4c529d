"""Finds the slope of a noisy line, in plain Python, and survives being killed at any moment.

    ARGOSY_CHECKPOINT_DIR=/tmp/slope ARGOSY_CHECKPOINT_INTERVAL=1 python train.py

Kill it and start it again: it goes on from its newest checkpoint and ends with the same slope to the last
digit, because the checkpoint has the state of the random numbers too.
"""

import json
import random
import sys
from pathlib import Path

from argosy_sdk import due, latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
RATE = 0.01


def save(folder: Path, slope: float) -> None:
    """Write everything that the next step depends on."""
    (folder / "state.json").write_text(json.dumps({"slope": slope, "random": random.getstate()}))


def load(folder: Path) -> float:
    state = json.loads((folder / "state.json").read_text())
    version, numbers, gauss = state["random"]
    random.setstate((version, tuple(numbers), gauss))
    return float(state["slope"])


def main() -> None:
    random.seed(7)
    slope, step = 0.0, 0
    folder = latest()
    if folder is not None:
        slope, step = load(folder), int(folder.name.removeprefix("step-"))
        print(f"continuing after step {step}", flush=True)
    while step < STEPS:
        step += 1
        for _ in range(100):
            x = random.uniform(-1, 1)
            y = 2 * x + random.gauss(0, 0.1)
            slope -= RATE * (slope * x - y) * x
        print(f"step {step}", flush=True)
        if due(step) or step == STEPS:
            with saving(step) as folder:
                save(folder, slope)
    print(f"found the slope {slope!r}", flush=True)


if __name__ == "__main__":
    main()
