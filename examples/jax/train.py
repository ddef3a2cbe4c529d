"""Data-parallel training with JAX: every process has its own points, and jit sums the gradients.

The batch is one array whose rows are sharded over the devices of all processes; the weights are replicated.
JAX derives all communication from that.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

STEPS, POINTS, RATE = 200, 64, 0.1
SLOPE = np.array([2.0, -1.0, 0.5])


def main() -> None:
    # The coordinator's address is in JAX_COORDINATOR_ADDRESS.
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    rank, size = jax.process_index(), jax.process_count()
    say(f"{size} workers, {jax.device_count()} devices")
    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    rows = NamedSharding(mesh, PartitionSpec("workers"))
    weights = jax.device_put(np.zeros(4, np.float32), NamedSharding(mesh, PartitionSpec()))
    random = np.random.default_rng(rank)
    for step in range(STEPS):
        mine = random.normal(size=(POINTS, 3)).astype(np.float32)
        points = jax.make_array_from_process_local_data(rows, mine)
        wanted = jax.make_array_from_process_local_data(rows, (mine @ SLOPE + 3).astype(np.float32))
        weights, loss = train(weights, points, wanted)
        if (step + 1) % 50 == 0:
            say(f"step {step + 1}  loss {float(loss):.5f}")
    far = float(np.abs(np.asarray(weights)[:3] - SLOPE).max())
    say(f"found the slope within {far:.4f}")
    assert far < 0.05


@jax.jit
def train(weights: jax.Array, points: jax.Array, wanted: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(error)(weights, points, wanted)
    return weights - RATE * gradient, loss


def error(weights: jax.Array, points: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.mean((points @ weights[:3] + weights[3] - wanted) ** 2)


def say(line: str) -> None:
    if jax.process_index() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
