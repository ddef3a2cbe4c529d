"""Finds a slope with PyTorch's DistributedDataParallel; rank 0 saves the model, each rank its random numbers.

export ARGOSY_CHECKPOINT_DIR=/tmp/slope ARGOSY_CHECKPOINT_INTERVAL=1
torchrun --nproc-per-node 2 ddp.py
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from argosy_sdk import agree, due, latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    numbers = torch.Generator().manual_seed(rank)
    slope, step = torch.tensor([[2.0], [-1.0], [0.5]]), 0
    folder = agree(latest())
    if folder is not None:
        saved = torch.load(folder / "model.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        numbers.set_state(torch.load(folder / f"rank-{rank}.pt"))
        step = int(saved["step"])
        if rank == 0:
            print(f"continuing after step {step}", flush=True)
    while step < STEPS:
        step += 1
        points = torch.randn(64, 3, generator=numbers)
        loss = torch.nn.functional.mse_loss(model(points), points @ slope + 3.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}", flush=True)
        if agree(due(step)) or step == STEPS:
            with saving(step) as folder:
                torch.save(numbers.get_state(), folder / f"rank-{rank}.pt")
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, folder / "model.pt")
    if rank == 0:
        print(f"found the slope {model.module.weight.detach().flatten().tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
