"""Reads the specs of TrainingJobs, ScaleIns and ScaleOuts, and computes what follows from them.

Defaults are those of the types in `kinds`, which the CRDs repeat: an object that was stored under an older
CRD, without the fields that came later, is read like a new one.
"""

import re
from decimal import Decimal
from typing import TypeVar

import msgspec
from msgspec import Struct

from argosy.dialects.templates import containers
from argosy.kinds.quantity import parse_quantity
from argosy.kinds.scalers import (
    DEFAULT_DRAIN_TIMEOUT_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    ScaleInSpec,
    ScaleOutSpec,
)
from argosy.kinds.trainingjob import TrainingJobSpec
from argosy.workload.model import Json, Problem

MAX_WORKERS = 10_000
"""Maximum number of workers of a job. The status lists their names twice and must fit into etcd."""

GPU = "nvidia.com/gpu"

_WORD = re.compile(r"[^\s;&|()'\"]+")
_MISSING = re.compile(r"Object missing required field `(\w+)`")

T = TypeVar("T", bound=Struct)


def read_job_spec(raw: Json) -> TrainingJobSpec | Problem:
    """Return the spec of a TrainingJob with its defaults, or the first field that is missing or of a wrong
    type."""
    return _read(raw, TrainingJobSpec)


def read_scale_in_spec(raw: Json) -> ScaleInSpec | Problem:
    return _read(raw, ScaleInSpec)


def read_scale_out_spec(raw: Json) -> ScaleOutSpec | Problem:
    return _read(raw, ScaleOutSpec)


def min_replicas(spec: TrainingJobSpec) -> int:
    """Return the number of workers below which a job is not scaled in."""
    return spec.et_replica_specs.worker.min_replicas or 1


def max_replicas(spec: TrainingJobSpec) -> int:
    """Return the number of workers above which a job is not scaled out."""
    return min(spec.et_replica_specs.worker.max_replicas or MAX_WORKERS, MAX_WORKERS)


def slots_per_worker(spec: TrainingJobSpec) -> int:
    """Return the number of training processes in a worker, for host lists."""
    if spec.slots_per_worker is not None:
        return spec.slots_per_worker
    listed = containers(spec.et_replica_specs.worker.template)
    resources = listed[0].get("resources") if listed else None
    limits = resources.get("limits") if isinstance(resources, dict) else None
    return max(1, _whole_number(limits.get(GPU))) if isinstance(limits, dict) else 1


def needs_network_interfaces(spec: TrainingJobSpec) -> bool:
    """Return True if the launcher runs horovodrun without --network-interfaces and starts with one worker.

    Horovod then looks for common interfaces of its hosts, for which it needs two of them.
    """
    listed = containers(spec.et_replica_specs.launcher.template)
    words = [word for part in ("command", "args") for word in _words(listed[0].get(part) if listed else None)]
    runs_horovod = any(word.rpartition("/")[2] == "horovodrun" for word in words)
    named = any(word.startswith("--network-interface") for word in words)
    return spec.et_replica_specs.worker.replicas == 1 and runs_horovod and not named


def script_timeout_seconds(spec: ScaleInSpec | ScaleOutSpec) -> int:
    """Return after how long one run of the script is ended."""
    return spec.timeout or DEFAULT_TIMEOUT_SECONDS


def start_timeout_seconds(spec: ScaleOutSpec) -> int:
    """Return how long a ScaleOut waits for its pods to run."""
    return spec.timeout or DEFAULT_TIMEOUT_SECONDS


def drain_timeout_seconds(spec: ScaleInSpec) -> int:
    """Return how long a ScaleIn waits for the training processes in its pods to end."""
    return spec.timeout or DEFAULT_DRAIN_TIMEOUT_SECONDS


def _read(raw: Json, kind: type[T]) -> T | Problem:
    try:
        return msgspec.convert(dict(raw), kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = f"spec{where.removesuffix('`')}"
        if missing := _MISSING.fullmatch(message):
            return Problem(f"{path}.{missing[1]}", "required")
        return Problem(path, message[:1].lower() + message[1:])


def _words(arguments: object) -> list[str]:
    """Return the words of a command, also of scripts in it."""
    texts = arguments if isinstance(arguments, list) else []
    return [word for text in texts if isinstance(text, str) for word in _WORD.findall(text)]


def _whole_number(quantity: object) -> int:
    """Return a quantity of a template as a number; 0 if it is none. The template is checked elsewhere."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        return 0
    try:
        value = parse_quantity(quantity)
    except ValueError:
        return 0
    return int(value) if abs(value) < Decimal(2**31) else 0
