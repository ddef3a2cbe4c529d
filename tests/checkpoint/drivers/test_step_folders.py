"""Checkpoints in the folder of a training: listed, verified and deleted without a store."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.checkpoint.drivers.step_folders import StepFolders
from argosy.checkpoint.drivers.uris import open_checkpoints
from argosy.checkpoint.manifest import Manifest
from argosy.cli.checkpoints import checkpoints
from tests.support.checkpoints import make_checkpoint

CONTENT = {"a": b"model" * 100, "b": b"optimizer"}


@pytest.fixture
def manifests(tmp_path: Path) -> list[Manifest]:
    """Checkpoints of three steps in the folder, the newest first."""
    return [make_checkpoint(tmp_path, step, CONTENT)[1] for step in (700, 60, 5)]


def remove(folder: Path) -> None:
    (folder / "a").unlink()


def shorten(folder: Path) -> None:
    (folder / "a").write_bytes(b"model")


def link(folder: Path) -> None:
    (folder / "a").rename(folder.parent / "elsewhere")
    (folder / "a").symlink_to(folder.parent / "elsewhere")


def change(folder: Path) -> None:
    (folder / "a").write_bytes(b"mode1" * 100)


def test_checkpoints_of_a_training_are_listed_by_step(tmp_path: Path, manifests: list[Manifest]) -> None:
    (tmp_path / "step-800.tmp").mkdir()
    (tmp_path / "other").mkdir()
    found = open_checkpoints(f"file://{tmp_path}")
    assert isinstance(found, StepFolders)
    assert found.scan().manifests == tuple(manifests)
    assert found.find_latest().manifest == manifests[0]


def test_a_folder_without_a_valid_manifest_is_skipped_with_the_reason(
    tmp_path: Path, manifests: list[Manifest]
) -> None:
    (tmp_path / "step-700" / "manifest.json").write_text("<html>")
    (tmp_path / "step-60").rename(tmp_path / "step-61")
    found = StepFolders(tmp_path).scan()
    assert found.manifests == (manifests[2],)
    assert [each.name for each in found.skipped] == ["step-61", "step-700"]
    assert found.skipped[0].reason == "the manifest is of step 60"


@pytest.mark.parametrize(
    ("damage", "want", "want_latest"),
    [
        (remove, "a: No such file or directory", 60),
        (shorten, "a: has 5 bytes instead of 500", 60),
        (link, "a: is not a regular file", 60),
        (change, "a: has another digest than the manifest", 700),
    ],
)
def test_damage_is_found_and_the_next_older_checkpoint_counts(
    tmp_path: Path, manifests: list[Manifest], damage: Callable[[Path], None], want: str, want_latest: int
) -> None:
    damage(tmp_path / "step-700")
    found = StepFolders(tmp_path)
    assert found.verify(manifests[0]) == [want]
    assert found.verify(manifests[1]) == []
    latest = found.find_latest().manifest
    assert latest is not None
    assert latest.step == want_latest


def test_prune_deletes_older_checkpoints_but_not_named_ones(
    tmp_path: Path, manifests: list[Manifest]
) -> None:
    result = CliRunner().invoke(
        checkpoints, ["prune", f"file://{tmp_path}", "--keep-last", "1", "--keep", "5"]
    )
    assert (result.exit_code, result.stdout) == (0, f"deleted {manifests[1].name}\n")
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-5", "step-700"]
