"""A training that saves checkpoints when it is asked to, and continues from the last one.

Its state is a number that depends on every step before, so the result shows whether one was left out. The
file `computed.txt` beside the checkpoints has every step that was ever computed; a step that is there twice
was lost.
"""

import hashlib
import os
import time
from pathlib import Path

from argosy_sdk import due, latest, open_order, saving, should_stop

STEPS, PACE = int(os.environ.get("STEPS", "200")), float(os.environ.get("PACE", "0.05"))
FOLDER = Path(os.environ["ARGOSY_CHECKPOINT_DIR"])


def train(state: str, step: int) -> str:
    time.sleep(PACE)
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def main() -> None:
    step, state = 0, ""
    if folder := latest():
        number, state = (folder / "state.txt").read_text().split()
        step = int(number)
    print(f"from step {step} (attempt {os.environ['ARGOSY_ATTEMPT']})", flush=True)
    with (FOLDER / "computed.txt").open("a", buffering=1) as computed:
        while step < STEPS:
            step += 1
            state = train(state, step)
            print(step, file=computed)
            if due(step) and not (FOLDER / "hold").exists():
                order = open_order()
                with saving(step) as folder:
                    (folder / "state.txt").write_text(f"{step} {state}")
                print(f"saved step {step}{f' ({order.reason})' if order else ''}", flush=True)
            while should_stop():
                time.sleep(1)  # the pod is deleted; every further step would be lost
    print(f"state {state[:12]} after {STEPS} steps", flush=True)


if __name__ == "__main__":
    main()
