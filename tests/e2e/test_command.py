"""The `argosy` command where it speaks of the local control plane itself."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import ARGOSY, environment
from tests.support.local_control_plane import ControlPlane

OPTIONS = ("--nodes", "3", "--pretend-gpus", "2")
"""Those of the control plane that is up: `argosy up` with others would be refused."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_status_as_json_is_json(plane: ControlPlane) -> None:
    assert json.loads(plane.argosy("status", "-o", "json").stdout)["running"] is True


def test_up_says_what_pods_and_images_are_on_this_machine(plane: ControlPlane) -> None:
    out = plane.argosy("up", *OPTIONS).stdout
    assert "pods run as processes of this machine: isolated for rehearsal, not a security boundary" in out
    assert "images are not pulled: `image: NAME` is this machine's file system" in out


def test_no_control_plane_at_all_is_said_with_the_way_to_one(tmp_path: Path) -> None:
    nowhere = environment(ARGOSY_HOME=str(tmp_path), HOME=str(tmp_path))
    for words in (("ps",), ("run", "--", "true"), ("logs", "x"), ("rm", "x")):
        done = subprocess.run(
            [ARGOSY, *words], env=nowhere, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert "No cluster? `argosy up` starts a control plane on this machine." in done.stderr
        assert "Traceback" not in done.stderr
