"""Tests for the cgroups of nodes, version 1 and 2, with ordinary folders instead of kernel ones."""

from pathlib import Path

import pytest

from tests.support.cluster import cgroups


@pytest.fixture
def cgroup_v1(tmp_path: Path) -> Path:
    for name in ("cpu", "cpuset", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpu,cpuacct").symlink_to("cpu")
    return tmp_path


def test_create_makes_a_cgroup_in_every_v1_hierarchy(cgroup_v1: Path) -> None:
    cgroup = cgroups.create("cluster/node-1", cgroup_v1)
    assert cgroup == [cgroup_v1 / name / "cluster/node-1" for name in ("cpu", "cpuset", "unified")]
    assert all(place.is_dir() for place in cgroup)
    assert cgroups.create("cluster/node-1", cgroup_v1) == cgroup


def test_cgroup_v2_has_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    assert cgroups.hierarchies(tmp_path) == [tmp_path]


def test_create_enables_controllers_in_cgroup_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    cgroups.create("cluster", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_remove_deletes_children_and_no_siblings(cgroup_v1: Path) -> None:
    cgroups.create("cluster/node-1/kubepods/pod", cgroup_v1)
    cgroups.create("other", cgroup_v1)
    cgroups.remove("cluster", cgroup_v1)
    cgroups.remove("cluster", cgroup_v1)
    assert sorted(place.name for place in (cgroup_v1 / "cpu").iterdir() if place.is_dir()) == ["other"]


@pytest.mark.root
def test_real_cgroup_accepts_a_process_and_is_removed() -> None:
    name = "argosy-test-cgroups"
    cgroup = cgroups.create(f"{name}/node", cgroups.ROOT)
    try:
        assert cgroup
        for place in cgroup:
            assert (place / "cgroup.procs").read_text() == ""
            cpus = place / "cpuset.cpus"
            if cpus.exists() and not (place / "cgroup.controllers").exists():
                assert cpus.read_text() == (place.parent.parent / "cpuset.cpus").read_text()
    finally:
        cgroups.remove(name)
    assert not any((hierarchy / name).exists() for hierarchy in cgroups.hierarchies())
