"""Elastic training with Horovod and PyTorch: workers may join and leave while it runs.

Finds the slope of a plane from noisy points. Progress that every worker would miss after a failure is at most
what was done since the last commit, five steps.
"""

import os
import socket
import time

import horovod.torch as hvd
import torch

STEPS = int(os.environ.get("STEPS", "150"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
COMMIT_EVERY = 5
SLOPE = torch.tensor([[2.0], [-1.0], [0.5]])

hvd.init()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()} from step {state.step}", flush=True)
    while state.step < STEPS:
        points = torch.randn(64, 3)
        noise = 0.01 * torch.randn(64, 1)
        loss = torch.nn.functional.mse_loss(model(points), points @ SLOPE + 3.0 + noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step} size {hvd.size()} loss {loss.item():.5f}", flush=True)
        if state.step % COMMIT_EVERY == 0:
            state.commit()
        time.sleep(STEP_SECONDS)


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))
error = (model.weight.detach().T - SLOPE).abs().max().item()
if hvd.rank() == 0:
    print(f"{hvd.size()} workers found the slope within {error:.4f}", flush=True)
hvd.shutdown()
assert error < 0.05
