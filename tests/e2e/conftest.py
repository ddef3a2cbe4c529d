"""One control plane with three nodes for the tests that do not break it."""

from collections.abc import Iterator

import pytest

from tests.support.local_control_plane import ControlPlane


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "3", "--pretend-gpus", "2")
    yield running
    running.down()
