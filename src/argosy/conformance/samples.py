"""Sample jobs of the built-in adapters for the conformance kit; other adapters declare their own."""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from argosy.frameworks.base import Framework, Injection, RankInfo, Sample
from argosy.frameworks.mpi import HOST_FILE
from argosy.frameworks.tensorflow import CLUSTER


def _in_config(injection: Injection) -> RankInfo:
    """Return the rank in TensorFlow's cluster, by its order of roles; the evaluator has none."""
    config = json.loads(injection.env.get("TF_CONFIG", "{}"))
    task, cluster = config.get("task", {}), config.get("cluster", {})
    members = [(name, index) for name in CLUSTER for index in range(len(cluster.get(name, ())))]
    member = (task.get("type"), task.get("index"))
    return RankInfo(members.index(member) if member in members else None, len(members) or None)


def _in_host_file(injection: Injection) -> RankInfo:
    """Return the world size of mpirun: the slots of all hosts; a duplicate host counts once."""
    lines = re.findall(r"^(\S+?)(?: slots=|:)(\d+)$", injection.files.get(HOST_FILE, ""), re.MULTILINE)
    slots = {host: int(number) for host, number in lines}
    return RankInfo(world_size=sum(slots.values()) or None)


_ranked = partial(Sample, rank_variable="RANK", world_size_variable="WORLD_SIZE")
_launched = partial(Sample, roles={"launcher": 1, "worker": 2}, read_ranks=_in_host_file)
_clustered = partial(Sample, read_ranks=_in_config)

BUILT_IN: Final[Mapping[str, tuple[Sample, ...]]] = {
    "bagua": (
        _ranked(title="static", roles={"master": 1, "worker": 2}, ranked_roles=("master", "worker")),
        Sample(title="elastic", roles={"worker": 2, "etcd": 1}, elastic={"worker": (1, 4)}),
    ),
    "custom": (
        Sample(title="two roles", roles={"ps": 1, "worker": 3}, rank_variable="INDEX"),
        Sample(title="elastic", roles={"worker": 2}, elastic={"worker": (1, 4)}, rank_variable="INDEX"),
    ),
    "dask": (
        _ranked(
            title="with a leader",
            roles={"scheduler": 1, "leadworker": 1, "worker": 2, "launcher": 1},
            ranked_roles=("leadworker", "worker", "launcher"),
        ),
        _ranked(
            title="without a leader",
            roles={"scheduler": 1, "worker": 2, "launcher": 1},
            ranked_roles=("worker", "launcher"),
        ),
        Sample(
            title="elastic",
            roles={"scheduler": 1, "worker": 2, "launcher": 1},
            elastic={"worker": (1, 4)},
        ),
    ),
    "deepspeed": (
        _ranked(title="one process per pod", roles={"worker": 3}),
        _ranked(title="four processes per pod", roles={"worker": 2}, options={"procsPerNode": 4}, slots=4),
        _launched(title="from a launcher"),
    ),
    "horovod": (
        _launched(title="over MPI", options={"controller": "mpi"}),
        _launched(title="over gloo", options={"controller": "gloo"}),
    ),
    "jax": (
        Sample(
            title="workers",
            roles={"worker": 3},
            rank_variable="JAX_PROCESS_ID",
            world_size_variable="JAX_NUM_PROCESSES",
        ),
    ),
    "mpi": (
        *(_launched(title=name, options={"implementation": name}) for name in ("ompi", "mpich", "intel")),
        _launched(title="by ssh", options={"sshKeys": True}),
    ),
    "pytorch": (
        _ranked(title="static", roles={"worker": 3}),
        _ranked(title="with a master", roles={"master": 1, "worker": 2}, ranked_roles=("master", "worker")),
        _ranked(title="four processes per pod", roles={"worker": 2}, options={"procsPerNode": 4}, slots=4),
        Sample(title="elastic", roles={"worker": 2}, elastic={"worker": (1, 4)}),
    ),
    "standalone": (Sample(title="independent pods", roles={"worker": 3}),),
    "tensorflow": (
        _clustered(
            title="synchronous workers",
            roles={"chief": 1, "worker": 2, "evaluator": 1},
            ranked_roles=("chief", "worker"),
        ),
        _clustered(
            title="parameter servers",
            roles={"chief": 1, "worker": 2, "ps": 2},
            ranked_roles=("chief", "worker", "ps"),
        ),
        Sample(
            title="dynamic workers",
            roles={"worker": 2, "ps": 1},
            elastic={"worker": (1, 4)},
            options={"dynamicWorkers": True},
        ),
    ),
    "xgboost": (
        Sample(
            title="workers",
            roles={"worker": 12},
            rank_variable="DMLC_TASK_ID",
            world_size_variable="DMLC_NUM_WORKER",
        ),
    ),
}


def samples_of(framework: Framework) -> tuple[Sample, ...]:
    """Return the samples that the adapter declares, or those of a built-in adapter; empty if it has none."""
    declared: tuple[Sample, ...] = getattr(framework, "samples", ())
    return declared or BUILT_IN.get(framework.name, ())
