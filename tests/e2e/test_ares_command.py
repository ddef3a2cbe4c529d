"""A configured initializer command of AresJobs works on the local control plane."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import initializer_command
from tests.support.local_control_plane import ControlPlane, operated
from tests.support.targets import LocalTarget
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane whose operator reads a configuration file."""
    file = tmp_path / "config.yaml"
    no_observer = {"cache": {"observer": {"enabled": False}}}  # the operator serves the cache itself
    file.write_text(yaml.safe_dump({**no_observer, **initializer_command.settings(sys.executable)}))
    with operated("--config", str(file)) as running:
        yield running


def test_configured_initializer_command_waits_for_roles_and_writes_host_files(plane: ControlPlane) -> None:
    initializer_command.check(User(LocalTarget(plane), "default"))
