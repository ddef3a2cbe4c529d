"""Skips tests of process checkpoints where CRIU is missing or does not work."""

import os
from functools import cache

import pytest

from argosy.checkpoint.drivers import criu


def require_criu() -> None:
    """Skip the test with the reason; with ARGOSY_REQUIRE_ALL=1 it fails."""
    if problem := _problem():
        pytest.fail(problem) if os.environ.get("ARGOSY_REQUIRE_ALL") == "1" else pytest.skip(problem)


@cache
def _problem() -> str:
    if criu.find_prefix() is None:
        return criu.MISSING
    return criu.probe().problem
