"""Makes all processes of a training use the value of rank 0.

The communicator is that of the framework which the program already uses, so nothing is imported here that the
program has not imported itself.
"""

import os
import pickle
import sys
from pathlib import Path
from typing import Any, Optional, TypeVar

from argosy_sdk.environment import place
from argosy_sdk.errors import CheckpointError

T = TypeVar("T")
_MAX_JAX_BYTES = 4096


def agree(value: T) -> T:
    """Return the value of rank 0 on all ranks; every rank must call it.

    It uses torch.distributed, mpi4py or JAX, whichever is initialized, and returns the value itself in a
    training of one process:

        if agree(due(step)):
            ...

    Where each pod has a folder of its own, `agree(latest())` raises `CheckpointError` in pods that have
    restored another checkpoint than that of rank 0: they were started before it was complete, or after.
    """
    agreed = _broadcast(value)
    is_shared = os.environ.get("ARGOSY_CHECKPOINT_SHARED", "1") != "0"
    if isinstance(agreed, Path) and not is_shared and not agreed.exists():
        problem = f"rank 0 resumes from {agreed}, which this pod does not have"
        raise CheckpointError(f"agree: {problem}; restart all pods")
    return agreed


def _broadcast(value: T) -> T:
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        values = [value]
        torch.broadcast_object_list(values, src=0)
        return values[0]
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1:
        agreed: T = mpi.COMM_WORLD.bcast(value, root=0)
        return agreed
    jax = sys.modules.get("jax")
    if jax is not None and jax.process_count() > 1:
        return _agree_in_jax(jax, value)
    world = place(os.environ, None, None).world
    if world > 1:
        raise CheckpointError(
            f"agree: {world} processes, but none of torch.distributed, mpi4py and JAX is initialized; "
            "broadcast the value of rank 0 by the means of your framework"
        )
    return value


def _agree_in_jax(jax: Any, value: T) -> T:
    from jax.experimental import multihost_utils  # type: ignore[import-not-found, unused-ignore]

    numpy = sys.modules["numpy"]
    content: Optional[bytes] = pickle.dumps(value) if jax.process_index() == 0 else b""
    if len(content or b"") > _MAX_JAX_BYTES:
        raise CheckpointError(f"agree: a value of more than {_MAX_JAX_BYTES} bytes is not supported with JAX")
    padded = numpy.zeros(_MAX_JAX_BYTES, dtype=numpy.uint8)
    padded[: len(content or b"")] = numpy.frombuffer(content or b"", dtype=numpy.uint8)
    received: T = pickle.loads(bytes(multihost_utils.broadcast_one_to_all(padded)))  # noqa: S301 - from rank 0
    return received
