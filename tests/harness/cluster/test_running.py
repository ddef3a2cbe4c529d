"""Tests that a cluster which fails to start leaves no process behind."""

from pathlib import Path

import pytest

from tests.support.assets import DEFAULT
from tests.support.cluster import lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.running import RunningCluster


def test_cluster_that_fails_to_start_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path, _settings: Settings) -> None:
        (folder / "started").touch()
        raise lifecycle.ClusterFailed("the kubelet does not answer")

    ended: list[Path] = []
    monkeypatch.setattr(lifecycle, "up", fail)
    monkeypatch.setattr(lifecycle, "down", ended.append)
    with pytest.raises(lifecycle.ClusterFailed, match="does not answer"):
        RunningCluster.up(tmp_path, Settings(DEFAULT))
    assert ended == [tmp_path]
