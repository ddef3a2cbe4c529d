"""Parameters that several fixtures share."""

from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from tests.support import assets
from tests.support.mpi_venvs import launchers


def _reference_is_built() -> bool:
    try:
        assets.find("kube-apiserver")
    except assets.MissingAsset:
        return False
    return True


API_SERVERS: Final = [
    "kubernetes",
    pytest.param("local", marks=[pytest.mark.long] if _reference_is_built() else []),
]
"""For tests that must pass on the reference apiserver and on the local one.

By default they run on the reference, and the differential tests show that the local one behaves alike. In
`--long`, or where there is no reference, they run on the local one too.
"""


def marked(cases: Mapping[str, object], unmarked: Iterable[str], mark: pytest.MarkDecorator) -> list[object]:
    """Parameters for these cases, named after their keys; all but those in `unmarked` have the mark."""
    unmarked = frozenset(unmarked)
    assert unmarked <= set(cases), f"unknown cases: {sorted(unmarked - set(cases))}"
    return [
        pytest.param(case, id=key, marks=[] if key in unmarked else [mark]) for key, case in cases.items()
    ]


def sampled(cases: Mapping[str, object], every: int = 4) -> list[object]:
    """Parameters for these cases: one of `every` and the last by default, all of them in `--long`."""
    sample = {*list(cases)[::every], *list(cases)[-1:]}
    return marked(cases, sample, pytest.mark.long)


MPI_LAUNCHERS: Final = marked(launchers(), ["MPICH"], pytest.mark.long)
"""The implementations of MPI; by default only the one of this repository's own environment."""
