"""An administrator's own command for the initializers of AresJobs, on the local control plane."""

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
    """A control plane whose operator has a file of settings."""
    file = tmp_path / "config.yaml"
    asked = {"cache": {"observer": {"enabled": False}}}  # the operator itself
    file.write_text(yaml.safe_dump({**asked, **initializer_command.settings(sys.executable)}))
    with operated("--config", str(file)) as running:
        yield running


def test_roles_wait_and_have_host_files_by_the_command_of_the_settings(plane: ControlPlane) -> None:
    initializer_command.check(User(LocalTarget(plane), "default"))
