"""Data-parallel training with PyTorch whose result does not depend on the number of workers.

Each step takes the same batch, which is divided among the workers that there are, and gradients are summed
over gloo. So workers may come and go, and the weights are those of a run that nothing has disturbed. Rank 0
commits the state every few steps. When the group forms anew, all workers continue from the last commit: only
steps after it are computed again.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "300"))
"""Number of steps, unless the file `stop` ends the training before."""
COMMIT = int(os.environ.get("COMMIT", "5"))
"""Steps between two commits."""
PACE = float(os.environ.get("PACE", "0.1"))
"""Seconds that a step takes at least, so that there is time to watch."""
FOLDER = Path(os.environ.get("STATE", "/tmp/elastic-torch"))
"""A folder that all workers share."""
BATCH = 48
SLOPE = torch.tensor([2.0, -1.0, 0.5])


def main() -> int:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    state = load()
    weights, momentum = torch.tensor(state["weights"]), torch.tensor(state["momentum"])
    if rank == 0:
        print(f"{size} workers, from step {state['step']}", flush=True)
    stopped = False
    while state["step"] < STEPS and not stopped:
        began = time.monotonic()
        gradient, loss, stopped = step(weights, state["step"], rank, size)
        momentum = 0.9 * momentum + gradient
        weights = weights - 0.02 * momentum
        state["step"] += 1
        state["losses"].append(loss)
        state["workers"].append(size)
        if state["step"] % COMMIT == 0 or stopped or state["step"] == STEPS:
            commit(rank, {**state, "weights": weights.tolist(), "momentum": momentum.tolist()})
        time.sleep(max(PACE - (time.monotonic() - began), 0.0))
    far = (weights[:3] - SLOPE).abs().max().item()
    if rank == 0:
        print(f"step {state['step']}: found the slope within {far:.4f}", flush=True)
    dist.destroy_process_group()
    return 0 if stopped or far < 0.1 else 1


def step(weights: torch.Tensor, number: int, rank: int, size: int) -> tuple[torch.Tensor, float, bool]:
    """Return gradient and loss of the whole batch, and whether rank 0 was told to stop."""
    random = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(number))
    points, noise = random[:, :3], random[:, 3]
    own = torch.cat([points, torch.ones(BATCH, 1)], dim=1)[rank::size]
    errors = own @ weights - (points @ SLOPE + 3.0 + 0.1 * noise)[rank::size]
    stop = torch.tensor([float(rank == 0 and (FOLDER / "stop").exists())])
    total = torch.cat([2 * own.T @ errors / BATCH, (errors**2).sum().view(1) / BATCH, stop])
    dist.all_reduce(total)
    return total[:4], total[4].item(), bool(total[5])


def load() -> dict:
    """Return the last committed state, the same in all workers."""
    state = {"step": 0, "weights": [0.0] * 4, "momentum": [0.0] * 4, "losses": [], "workers": []}
    file = FOLDER / "state.json"
    if dist.get_rank() == 0 and file.exists():
        state = json.loads(file.read_text())
    shared = [state]
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def commit(rank: int, state: dict) -> None:
    if rank:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    new = FOLDER / "state.new"
    new.write_text(json.dumps(state))
    new.replace(FOLDER / "state.json")


if __name__ == "__main__":
    sys.exit(main())
