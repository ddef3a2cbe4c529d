"""Output of the `argosy` command that concerns the local control plane itself."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import ARGOSY, environment
from tests.support.local_control_plane import ControlPlane

OPTIONS = ("--nodes", "3", "--pretend-gpus", "2")
"""The options of the running control plane: `argosy up` with others is an error."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_status_prints_json(plane: ControlPlane) -> None:
    assert json.loads(plane.argosy("status", "-o", "json").stdout)["running"] is True


def test_up_explains_what_pods_and_images_are_on_this_machine(plane: ControlPlane) -> None:
    out = plane.argosy("up", *OPTIONS).stdout
    assert "pods run as processes of this machine: isolated for rehearsal, not a security boundary" in out
    assert "images are not pulled: `image: NAME` is this machine's file system" in out


def test_commands_without_a_cluster_suggest_argosy_up(tmp_path: Path) -> None:
    without_cluster = environment(ARGOSY_HOME=str(tmp_path), HOME=str(tmp_path))
    for words in (("ps",), ("run", "--", "true"), ("logs", "x"), ("rm", "x")):
        done = subprocess.run(
            [ARGOSY, *words], env=without_cluster, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert "No cluster? `argosy up` starts a control plane on this machine." in done.stderr
        assert "Traceback" not in done.stderr
