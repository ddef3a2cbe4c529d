"""Finds adapters by name: the built-in ones, and those of installed packages.

Packages register theirs in the entry-point group `argosy.frameworks`. The built-in ones are listed here, so
that a checkout works without being installed; a package cannot replace them.
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
    """An adapter, or why it cannot be used."""

    name: str
    origin: str
    """The package that contains it, with its version."""
    framework: Framework | None = None
    problem: str = ""


@cache
def installed() -> Mapping[str, Framework]:
    """Return every adapter by name, without those that cannot be loaded."""
    return {entry.name: entry.framework for entry in entries() if entry.framework}


@cache
def entries() -> tuple[Entry, ...]:
    """Return all adapters, sorted by name, including those that cannot be used."""
    builtin = {kind.name: Entry(kind.name, "argosy", kind()) for kind in BUILTIN_FRAMEWORKS}
    foreign = [_load(point) for point in entry_points(group=GROUP) if not _is_builtin(point)]
    adapters = [*builtin.values(), *(_check_name(entry, builtin) for entry in foreign)]
    return tuple(sorted(adapters, key=lambda entry: (entry.name, entry.origin)))


def _is_builtin(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == "argosy"


def _load(point: EntryPoint) -> Entry:
    origin = f"{point.dist.name} {point.dist.version}" if point.dist else "?"
    try:
        return Entry(point.name, origin, point.load()())
    except Exception as error:  # importing another package may raise anything
        return Entry(point.name, origin, problem=f"cannot be loaded: {type(error).__name__}: {error}")


def _check_name(entry: Entry, builtin: Mapping[str, Entry]) -> Entry:
    if entry.name not in builtin:
        return entry
    return Entry(entry.name, entry.origin, problem="has the name of a built-in framework")
