"""A training that saves when it gets SIGTERM, and continues from there. It needs neither an SDK nor orders.

The folder is all that it knows of Argosy. It fills `step-<n>.tmp`, writes `manifest.json` last and renames
the folder, so that the operator sees what was saved. The file `computed.txt` beside the checkpoints has every
step that was ever computed; a step that is there twice was lost.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS, PACE = int(os.environ.get("STEPS", "200")), float(os.environ.get("PACE", "0.05"))
FOLDER = Path(os.environ["ARGOSY_CHECKPOINT_DIR"])
STEP_FILE = Path(os.environ["ARGOSY_STEP_FILE"])


def train(state: str, step: int) -> str:
    time.sleep(PACE)
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def save(step: int, state: str) -> None:
    folder = FOLDER / f"step-{step}.tmp"
    folder.mkdir(exist_ok=True)
    (folder / "state.txt").write_text(state)
    digest = hashlib.sha256(state.encode()).hexdigest()
    part = {"path": "state.txt", "rank": 0, "size": len(state), "sha256": digest}
    (folder / "manifest.json").write_text(json.dumps({"step": step, "world": 1, "parts": [part]}))
    os.sync()
    folder.rename(FOLDER / f"step-{step}")


def load() -> tuple[int, str]:
    """Return step and state of the checkpoint that was found for this pod, which is verified."""
    folder = Path(os.environ["ARGOSY_RESUME_FROM"])
    if not folder.exists():
        return 0, ""
    step = int(json.loads((folder / "manifest.json").read_text())["step"])
    return step, (folder / "state.txt").read_text()


def main() -> None:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    step, state = load()
    first = step
    print(f"from step {step} (attempt {os.environ['ARGOSY_ATTEMPT']})", flush=True)
    with (FOLDER / "computed.txt").open("a", buffering=1) as computed:
        while step < STEPS and not signals:
            step += 1
            state = train(state, step)
            print(step, file=computed)
    if signals:
        if step > first:
            save(step, state)
            STEP_FILE.write_text(str(step))
        print(f"saved step {step} (SIGTERM)", flush=True)
        sys.exit(128 + signals[0])
    print(f"state {state[:12]} after {STEPS} steps", flush=True)


if __name__ == "__main__":
    main()
