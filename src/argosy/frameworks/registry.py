"""Finds adapters by name: those of installed packages (entry-point group `argosy.frameworks`) and our own.

Our own are named here as well, so that they are found in a checkout that is not installed; a package cannot
take the name of one of them.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from argosy.frameworks.bagua import Bagua
from argosy.frameworks.base import Framework
from argosy.frameworks.custom import Custom
from argosy.frameworks.dask import Dask
from argosy.frameworks.deepspeed import DeepSpeed
from argosy.frameworks.horovod import Horovod
from argosy.frameworks.jax import Jax
from argosy.frameworks.mpi import Mpi
from argosy.frameworks.pytorch import PyTorch
from argosy.frameworks.standalone import Standalone
from argosy.frameworks.tensorflow import TensorFlow
from argosy.frameworks.xgboost import XGBoost

GROUP = "argosy.frameworks"
BUILTIN_FRAMEWORKS: tuple[type[Framework], ...] = (
    Bagua,
    Custom,
    Dask,
    DeepSpeed,
    Horovod,
    Jax,
    Mpi,
    PyTorch,
    Standalone,
    TensorFlow,
    XGBoost,
)


def find_framework(name: str) -> Framework | None:
    return installed().get(name)


class Entry(Struct, frozen=True):
    """An adapter that there is, or would be but for a problem."""

    name: str
    origin: str
    """The package that it came with, and its version."""
    framework: Framework | None = None
    problem: str = ""


@cache
def installed() -> Mapping[str, Framework]:
    """Every adapter by name. One that cannot be loaded is left out: it must not take the operator with it."""
    return {entry.name: entry.framework for entry in entries() if entry.framework}


@cache
def entries() -> tuple[Entry, ...]:
    """All that were found, sorted by name: ours, and what other packages brought."""
    ours = {own.name: Entry(own.name, "argosy", own()) for own in BUILTIN_FRAMEWORKS}
    foreign = [_loaded(point) for point in entry_points(group=GROUP) if not _is_ours(point)]
    adapters = [*ours.values(), *(_unless_taken(entry, ours) for entry in foreign)]
    return tuple(sorted(adapters, key=lambda entry: (entry.name, entry.origin)))


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == "argosy"


def _loaded(point: EntryPoint) -> Entry:
    origin = f"{point.dist.name} {point.dist.version}" if point.dist else "?"
    try:
        return Entry(point.name, origin, point.load()())
    except Exception as error:  # a foreign package may fail in any way
        return Entry(point.name, origin, problem=f"cannot be loaded: {type(error).__name__}: {error}")


def _unless_taken(entry: Entry, ours: Mapping[str, Entry]) -> Entry:
    if entry.name not in ours:
        return entry
    return Entry(entry.name, entry.origin, problem="has the name of one that is built in")
