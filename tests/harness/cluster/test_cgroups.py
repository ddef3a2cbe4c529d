"""Cgroups of nodes, in both forms; ordinary folders stand for the kernel's."""

from pathlib import Path

import pytest

from tests.support.cluster import cgroups


@pytest.fixture
def old_form(tmp_path: Path) -> Path:
    for name in ("cpu", "cpuset", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpu,cpuacct").symlink_to("cpu")
    return tmp_path


def test_a_cgroup_is_made_in_every_hierarchy_once(old_form: Path) -> None:
    made = cgroups.create("cluster/node-1", old_form)
    assert made == [old_form / name / "cluster/node-1" for name in ("cpu", "cpuset", "unified")]
    assert all(place.is_dir() for place in made)
    assert cgroups.create("cluster/node-1", old_form) == made


def test_the_unified_form_has_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    assert cgroups.hierarchies(tmp_path) == [tmp_path]


def test_controllers_are_handed_on_in_the_unified_form(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    cgroups.create("cluster", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_removing_takes_all_below_and_nothing_beside(old_form: Path) -> None:
    cgroups.create("cluster/node-1/kubepods/pod", old_form)
    cgroups.create("other", old_form)
    cgroups.remove("cluster", old_form)
    cgroups.remove("cluster", old_form)
    assert sorted(place.name for place in (old_form / "cpu").iterdir() if place.is_dir()) == ["other"]


@pytest.mark.root
def test_the_machines_own_cgroups_take_a_process_and_go() -> None:
    name = "argosy-test-cgroups"
    made = cgroups.create(f"{name}/node", cgroups.ROOT)
    try:
        assert made
        for place in made:
            assert (place / "cgroup.procs").read_text() == ""
            cpus = place / "cpuset.cpus"
            if cpus.exists() and not (place / "cgroup.controllers").exists():
                assert cpus.read_text() == (place.parent.parent / "cpuset.cpus").read_text()
    finally:
        cgroups.remove(name)
    assert not any((hierarchy / name).exists() for hierarchy in cgroups.hierarchies())
