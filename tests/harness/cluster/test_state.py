"""Tests for recording the processes of a cluster, and for finding them without a record."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.local.processes import Process
from tests.support.cluster.components import Settings
from tests.support.cluster.layout import Layout
from tests.support.cluster.state import Notes, State, read, strays
from tests.support.servers import Server


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    server = Server(
        "kubernetes", "https://10.0.0.1:6443", "token", tmp_path / "ca", tmp_path / "kc", tmp_path
    )
    return Notes(State(Settings("1.36"), Layout(tmp_path, 2, ("node-1",)), server, {}))


def test_every_change_is_written_to_disk(notes: Notes, tmp_path: Path) -> None:
    assert not notes.runs("etcd")
    notes.note("etcd", os.getpid())
    assert notes.runs("etcd")
    assert read(tmp_path) == notes.state
    assert notes.state.dead == []


def test_process_with_a_reused_pid_does_not_count_as_running(notes: Notes) -> None:
    notes.note("etcd", os.getpid())
    notes.state.processes["etcd"] = Process(os.getpid(), 1)
    assert not notes.runs("etcd")
    assert notes.state.dead == ["etcd"]


def test_incomplete_state_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"settings":')
    assert read(tmp_path) is None


@pytest.fixture
def program(tmp_path: Path) -> Iterator[list[str]]:
    folder = tmp_path / "assets"
    folder.mkdir()
    shutil.copy(shutil.which("sleep") or "", folder / "sleep")
    yield [str(folder / "sleep"), "60"]


def test_processes_are_found_by_folder_without_a_state_file(tmp_path: Path, program: list[str]) -> None:
    cluster = tmp_path / "cluster"
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    # The name that a program is called by is its first word, and free.
    with (
        subprocess.Popen([f"{cluster}/etcd", "60"], executable=program[0]) as ours,
        subprocess.Popen([f"{tmp_path}/other/etcd", "60"], executable=program[0]) as others,
        subprocess.Popen([f"{cluster}/etcd", "60"], executable="/usr/bin/sleep") as strange,
    ):
        try:
            assert [process.pid for process in strays(cluster, environment)] == [ours.pid]
        finally:
            for process in (ours, others, strange):
                process.kill()
