"""Reads the variables that Argosy and the launchers of frameworks give to a training process."""

import json
from pathlib import Path
from typing import Mapping, NamedTuple, Optional, Tuple

from argosy_sdk.errors import CheckpointError

DEFAULT_ORDERS = "/run/argosy/orders/orders.json"
_RANKS = (
    ("ARGOSY_RANK", "ARGOSY_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
)
_LOCAL_RANKS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


class Place(NamedTuple):
    """Which process this is, and how many write into its checkpoint folder."""

    rank: int
    world: int
    """Processes of the job."""
    leader: bool
    """Whether this process commits the folder: rank 0, or the first rank of a pod with its own folder."""
    members: int
    """Processes that write into the folder: all of the job, or those of a pod with its own folder."""


def place(environ: Mapping[str, str], rank: Optional[int], world: Optional[int]) -> Place:
    """Return the place of this process; arguments that are not None take precedence."""
    detected = _pair(environ, _RANKS) or _tensorflow(environ) or (0, 1)
    rank = detected[0] if rank is None else rank
    world = detected[1] if world is None else world
    if not 0 <= rank < world:
        raise CheckpointError(
            f"rank {rank}: must be from 0 to {world - 1}, because the world size is {world}"
        )
    if environ.get("ARGOSY_CHECKPOINT_SHARED", "1") == "0":
        local_rank, members = _pair(environ, _LOCAL_RANKS) or (0, 1)
        return Place(rank, world, local_rank == 0, members)
    return Place(rank, world, rank == 0, world)


def directory(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the folder for checkpoints, or None if there is none."""
    path = environ.get("ARGOSY_CHECKPOINT_DIR", "")
    return Path(path) if path else None


def resume_folder(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the folder of the checkpoint that was restored for this process, if any.

    What was restored counts also in a pod that is the first one by its number: that of a pod which somebody
    has deleted is used again.
    """
    path = environ.get("ARGOSY_RESUME_FROM", "")
    if not path or (environ.get("ARGOSY_RESUME", "1") == "0" and not Path(path).exists()):
        return None
    return Path(path)


def interval(environ: Mapping[str, str]) -> Optional[float]:
    """Return the seconds between checkpoints, or None if only orders count."""
    text = environ.get("ARGOSY_CHECKPOINT_INTERVAL", "")
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = -1.0
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise CheckpointError(
            f"ARGOSY_CHECKPOINT_INTERVAL: invalid value {text!r}: must be a number of seconds"
        )
    return seconds


def orders_path(environ: Mapping[str, str]) -> Path:
    """Return the path of orders.json, which need not exist."""
    return Path(environ.get("ARGOSY_ORDERS") or DEFAULT_ORDERS)


def step_file(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the file in which this process reports its step; None if it need not."""
    path = environ.get("ARGOSY_STEP_FILE", "")
    local = _pair(environ, _LOCAL_RANKS)
    return Path(path) if path and (local is None or local[0] == 0) else None


def number(environ: Mapping[str, str], name: str) -> int:
    """Return the value of a variable that is a natural number; 0 if it is something else."""
    text = environ.get(name, "")
    return int(text) if text.isdigit() else 0


def _pair(environ: Mapping[str, str], names: Tuple[Tuple[str, str], ...]) -> Optional[Tuple[int, int]]:
    for first, second in names:
        if environ.get(first, "").isdigit() and environ.get(second, "").isdigit():
            return int(environ[first]), int(environ[second])
    return None


def _tensorflow(environ: Mapping[str, str]) -> Optional[Tuple[int, int]]:
    """Return rank and size among chief and workers of TF_CONFIG, the tasks that train."""
    try:
        config = json.loads(environ.get("TF_CONFIG", ""))
        cluster, task = config["cluster"], config["task"]
        chiefs = len(cluster.get("chief", ())) + len(cluster.get("master", ()))
        workers = len(cluster.get("worker", ()))
        if task["type"] not in ("chief", "master", "worker"):
            return None
        return int(task["index"]) + (chiefs if task["type"] == "worker" else 0), chiefs + workers
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
