"""Finds a slope with JAX on several processes; process 0 saves the weights, every process its random numbers.

export ARGOSY_CHECKPOINT_DIR=/tmp/slope ARGOSY_CHECKPOINT_INTERVAL=1
export JAX_COORDINATOR_ADDRESS=localhost:1234 JAX_NUM_PROCESSES=2
JAX_PROCESS_ID=0 python jax_train.py & JAX_PROCESS_ID=1 python jax_train.py
"""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from argosy_sdk import agree, due, latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
RATE = 0.1
SLOPE = np.array([2.0, -1.0, 0.5])


def main() -> None:
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    rank = jax.process_index()
    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    rows = NamedSharding(mesh, PartitionSpec("workers"))
    numbers = np.random.default_rng(rank)
    values, step = np.zeros(3, np.float32), 0
    folder = agree(latest())
    if folder is not None:
        values, step = np.load(folder / "weights.npy"), int(folder.name.removeprefix("step-"))
        numbers.bit_generator.state = json.loads((folder / f"rank-{rank}.json").read_text())
        if rank == 0:
            print(f"continuing after step {step}", flush=True)
    weights = jax.device_put(values, NamedSharding(mesh, PartitionSpec()))
    while step < STEPS:
        step += 1
        mine = numbers.normal(size=(64, 3)).astype(np.float32)
        points = jax.make_array_from_process_local_data(rows, mine)
        wanted = jax.make_array_from_process_local_data(rows, (mine @ SLOPE).astype(np.float32))
        weights = train(weights, points, wanted)
        if rank == 0:
            print(f"step {step}", flush=True)
        if agree(due(step)) or step == STEPS:
            with saving(step) as folder:
                (folder / f"rank-{rank}.json").write_text(json.dumps(numbers.bit_generator.state))
                if rank == 0:
                    np.save(folder / "weights.npy", np.asarray(weights))
    if rank == 0:
        print(f"found the slope {np.asarray(weights).tolist()}", flush=True)


@jax.jit
def train(weights: jax.Array, points: jax.Array, wanted: jax.Array) -> jax.Array:
    gradient = jax.grad(lambda guess: jnp.mean((points @ guess - wanted) ** 2))(weights)
    return weights - RATE * gradient


if __name__ == "__main__":
    main()
