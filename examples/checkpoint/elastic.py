"""Finds a slope with workers that come and go, and ends with the result of a run that nothing has disturbed.

Every step takes the same batch, which is divided among the workers that there are, and only rank 0 has state
to save: so a checkpoint can be loaded by any number of workers. When one comes or goes, torchrun starts all
of them again, and they continue from the last checkpoint. Start two to four of these, and kill some:

export ARGOSY_CHECKPOINT_DIR=/tmp/slope ARGOSY_CHECKPOINT_INTERVAL=1
torchrun --nnodes 2:4 --max_restarts 100 --rdzv_backend c10d --rdzv_endpoint localhost:29400 elastic.py
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from argosy_sdk import agree, due, latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
PACE = float(os.environ.get("PACE", "0"))
"""Seconds that a step takes longer, so that there is time to watch."""
BATCH = 48
"""Divisible by each number of workers: their mean gradients are then the gradient of the whole batch."""
SLOPE = torch.tensor([[2.0], [-1.0], [0.5]])


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    step, average = 0, torch.zeros(1, 3)  # of the weights after each step, so no step is without effect
    folder = agree(latest())
    if folder is not None:
        saved = torch.load(folder / "model.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, average = int(saved["step"]), saved["average"]
    if rank == 0:
        print(f"{size} workers, from step {step}", flush=True)
    while step < STEPS:
        step += 1
        batch = torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(step))
        points = batch[rank::size]
        loss = torch.nn.functional.mse_loss(model(points), points @ SLOPE + 3.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average += (model.module.weight.detach() - average) / step
        time.sleep(PACE)
        if rank == 0:
            print(f"step {step}", flush=True)
        if agree(due(step)) or step == STEPS:
            with saving(step) as folder:
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**state, "average": average, "step": step}, folder / "model.pt")
    if rank == 0:
        print(f"found the slope {average.flatten().tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
