"""Data-parallel training with Horovod and PyTorch: its optimizer averages the gradients over all ranks."""

import socket

import horovod.torch as hvd
import torch

STEPS = 200
SLOPE = torch.tensor([[2.0], [-1.0], [0.5]])

hvd.init()
print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}", flush=True)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
generator = torch.Generator().manual_seed(hvd.rank())
for step in range(1, STEPS + 1):
    points = torch.randn(64, 3, generator=generator)
    loss = torch.nn.functional.mse_loss(model(points), points @ SLOPE + 3.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and hvd.rank() == 0:
        print(f"step {step}  loss {loss.item():.5f}", flush=True)
far = (model.weight.detach().T - SLOPE).abs().max().item()
ranks = int(hvd.allreduce(torch.tensor(1), op=hvd.Sum))
if hvd.rank() == 0:
    print(f"{ranks} ranks found the slope within {far:.4f}", flush=True)
hvd.shutdown()
assert far < 0.05
