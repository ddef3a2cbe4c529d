"""Data-parallel training with DeepSpeed's engine, on CPUs over gloo."""

import argparse

import deepspeed
import torch

STEPS, POINTS = 200, 64
SLOPE = torch.tensor([[2.0], [-1.0], [0.5]])
CONFIG = {"train_micro_batch_size_per_gpu": POINTS, "zero_optimization": {"stage": 0}}

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0, help="set by the launcher")
parser.parse_args()

# Shared memory between the processes of a pod: it would be compiled at the first start.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
model = torch.nn.Linear(3, 1)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.05), config=CONFIG
)
generator = torch.Generator().manual_seed(rank)
for step in range(1, STEPS + 1):
    points = torch.randn(POINTS, 3, generator=generator)
    loss = torch.nn.functional.mse_loss(engine(points), points @ SLOPE + 3.0)
    engine.backward(loss)
    engine.step()
    if step % 50 == 0 and rank == 0:
        print(f"step {step}  loss {loss.item():.5f}", flush=True)
far = (model.weight.detach().T - SLOPE).abs().max().item()
print(f"rank {rank} of {size} found the slope within {far:.4f}", flush=True)
assert far < 0.05
