"""Which cgroup hierarchy a node uses, tested with folders that imitate one."""

from pathlib import Path

import pytest

from argosy.local.node import cgroups


def version_two(folder: Path) -> Path:
    (folder / "cgroup.controllers").write_text("cpu memory pids")
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def test_a_group_is_created_in_a_hierarchy_that_delegates_its_controllers(tmp_path: Path) -> None:
    hierarchy = cgroups.find_usable_hierarchy("argosy/x", version_two(tmp_path))
    assert hierarchy == cgroups.Hierarchy(2, tmp_path, tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +cpu"


def test_a_hierarchy_that_looks_writable_and_is_busy_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, the group that is seen as the root has processes: EBUSY."""

    def busy(mount: Path, group: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(cgroups, "_delegate", busy)
    assert cgroups.find_hierarchy(version_two(tmp_path)) is not None
    assert cgroups.find_usable_hierarchy("argosy/x", tmp_path) is None
