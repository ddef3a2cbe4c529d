"""Elastic training with Horovod and PyTorch, whose result does not depend on the number of workers.

Each step takes the same batch, which is divided among the workers that there are, and Horovod sums their
gradients. So workers may join, leave and fail, and the weights are those of a run that nothing has disturbed.
When workers join or leave, no step is computed again; after a failure those since the last commit are.
"""

import os
import socket
import time
from pathlib import Path

import horovod.torch as hvd
import torch

STEPS = int(os.environ.get("STEPS", "150"))
"""Number of steps, unless the file STOP ends the training before."""
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
"""Seconds that a step takes at least, so that there is time to watch."""
STOP = Path(os.environ.get("STOP", "/tmp/stop"))
COMMIT_EVERY = 5
BATCH = 48
SLOPE = torch.tensor([[2.0], [-1.0], [0.5]])

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()} from step {state.step}", flush=True)
    while state.step < STEPS and not state.stopped:
        started = time.monotonic()
        loss, state.stopped = take_step(state.step)
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step} size {hvd.size()} loss {loss:.6f}", flush=True)
        if state.step % COMMIT_EVERY == 0 or state.stopped:
            state.commit()
        time.sleep(max(STEP_SECONDS - (time.monotonic() - started), 0.0))


def take_step(number: int) -> tuple[float, bool]:
    """Train with the batch of a step; return the loss of the whole batch, and whether to stop after it."""
    random = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(number))
    points, noise = random[:, :3], random[:, 3:]
    own = slice(hvd.rank(), None, hvd.size())
    errors = model(points[own]) - (points @ SLOPE + 3.0 + 0.1 * noise)[own]
    loss = (errors**2).sum() / BATCH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stop = float(hvd.rank() == 0 and STOP.exists())
    total = hvd.allreduce(torch.tensor([loss.item(), stop]), op=hvd.Sum)
    return total[0].item(), bool(total[1])


progress = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, stopped=False)
train(progress)
weights = [*model.weight.detach().flatten().tolist(), *model.bias.detach().tolist()]
error = (model.weight.detach().T - SLOPE).abs().max().item()
if hvd.rank() == 0:
    print("weights " + " ".join(f"{weight:.6f}" for weight in weights), flush=True)
    print(f"{hvd.size()} workers found the slope within {error:.4f}", flush=True)
hvd.shutdown()
assert progress.stopped or error < 0.1
