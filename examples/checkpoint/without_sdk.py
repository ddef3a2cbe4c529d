"""The same as train.py without the SDK: the folder rule and `orders.json`, in any language.

    ARGOSY_CHECKPOINT_DIR=/tmp/slope python without_sdk.py

It saves every tenth step, and at once if `orders.json` has a new epoch or it gets SIGTERM.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
RATE = 0.01
DIRECTORY = Path(os.environ["ARGOSY_CHECKPOINT_DIR"])
ORDERS = Path(os.environ.get("ARGOSY_ORDERS", "/run/argosy/orders/orders.json"))


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save(step: int, epoch: int, slope: float) -> None:
    """Fill step-<n>.tmp, write the manifest last, flush all of it, rename."""
    folder = DIRECTORY / f"step-{step}.tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    content = json.dumps({"slope": slope, "random": random.getstate()}).encode()
    (folder / "state.json").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    part = {"path": "state.json", "rank": 0, "size": len(content), "sha256": digest}
    manifest = {"version": 1, "step": step, "world": 1, "epoch": epoch, "parts": [part]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in (folder / "state.json", folder / "manifest.json", folder):
        flush(path)
    shutil.rmtree(DIRECTORY / f"step-{step}", ignore_errors=True)
    folder.rename(DIRECTORY / f"step-{step}")
    flush(DIRECTORY)


def load() -> tuple[int, int, float]:
    """Return step, epoch and slope of the newest checkpoint whose digest is right."""
    folders = [path for path in DIRECTORY.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    if resumed := os.environ.get("ARGOSY_RESUME_FROM"):
        folders.append(Path(resumed))
    found = (0, 0, 0.0)
    for folder in folders:
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            content = (folder / "state.json").read_bytes()
        except (OSError, ValueError):
            continue
        if (
            hashlib.sha256(content).hexdigest() == manifest["parts"][0]["sha256"]
            and manifest["step"] > found[0]
        ):
            state = json.loads(content)
            version, numbers, gauss = state["random"]
            random.setstate((version, tuple(numbers), gauss))
            found = (manifest["step"], manifest["epoch"], state["slope"])
    return found


def ordered_epoch() -> int:
    """Return the number of the newest order; 0 if nothing is asked for."""
    try:
        order = json.loads(ORDERS.read_text())
    except (OSError, ValueError):
        return 0
    return int(order["epoch"]) if order["action"] == "Save" else 0


def main() -> None:
    random.seed(7)
    step, epoch, slope = load()
    if step:
        print(f"continuing after step {step}", flush=True)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    while step < STEPS:
        step += 1
        for _ in range(100):
            x = random.uniform(-1, 1)
            y = 2 * x + random.gauss(0, 0.1)
            slope -= RATE * (slope * x - y) * x
        print(f"step {step}", flush=True)
        if step % 10 == 0 or step == STEPS or ended or ordered_epoch() > epoch:
            epoch = max(epoch, ordered_epoch())
            save(step, epoch, slope)
            if ended:
                sys.exit(128 + ended[0])
    print(f"found the slope {slope!r}", flush=True)


if __name__ == "__main__":
    main()
