"""Data-parallel training with PyTorch's DistributedDataParallel over gloo; runs under torchrun or by itself.

Fits a line through noisy points that each worker generates. The gradients are averaged over the pods'
network. Rank 0 writes checkpoints, and every start continues from the last one.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "200"))
CHECKPOINT = Path(os.environ["CHECKPOINT"]) if "CHECKPOINT" in os.environ else None


def main() -> int:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = load(model)
    if rank == 0:
        print(f"{size} workers, from step {first}", flush=True)
    generator = torch.Generator().manual_seed(rank)
    slope = torch.tensor([[2.0], [-1.0], [0.5]])
    loss = torch.tensor(0.0)
    for step in range(first, STEPS):
        points = torch.randn(64, 3, generator=generator)
        loss = torch.nn.functional.mse_loss(model(points), points @ slope + 3.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0 and rank == 0:
            print(f"step {step + 1}  loss {loss.item():.5f}", flush=True)
            save(model, step + 1)
    far = (model.module.weight.detach().T - slope).abs().max().item()
    if rank == 0:
        print(f"found the slope within {far:.4f}", flush=True)
    dist.destroy_process_group()
    return 0 if far < 0.05 else 1


def load(model: torch.nn.Module) -> int:
    if CHECKPOINT is None or not CHECKPOINT.exists():
        return 0
    saved = torch.load(CHECKPOINT)
    model.load_state_dict(saved["model"])
    return int(saved["step"])


def save(model: torch.nn.Module, step: int) -> None:
    if CHECKPOINT is None:
        return
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    temporary = CHECKPOINT.with_suffix(".new")
    torch.save({"model": model.state_dict(), "step": step}, temporary)
    temporary.replace(CHECKPOINT)


if __name__ == "__main__":
    sys.exit(main())
