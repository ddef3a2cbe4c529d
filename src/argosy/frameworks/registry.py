"""Finds adapters by name: those of installed packages (entry-point group `argosy.frameworks`) and our own.

Our own are named here as well, so that they are found in a checkout that is not installed; a package cannot
take the name of one of them.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from argosy.frameworks.base import Framework
from argosy.frameworks.custom import Custom
from argosy.frameworks.dask import Dask
from argosy.frameworks.jax import Jax
from argosy.frameworks.mpi import Mpi
from argosy.frameworks.pytorch import PyTorch
from argosy.frameworks.standalone import Standalone

GROUP = "argosy.frameworks"
OURS: tuple[type[Framework], ...] = (Custom, Dask, Jax, Mpi, PyTorch, Standalone)


def find_framework(name: str) -> Framework | None:
    return installed().get(name)


@cache
def installed() -> Mapping[str, Framework]:
    """Every adapter by name. One that cannot be loaded is left out: it must not take the operator with it."""
    found: dict[str, Framework] = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = point.load()()
        except Exception:  # noqa: S112 - a foreign package may fail in any way
            continue
    return {**found, **{own.name: own() for own in OURS}}
