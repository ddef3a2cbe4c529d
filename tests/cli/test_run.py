"""`argosy run`: the TrainingRun of a command, and errors in files."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from argosy.cli.documents import load
from argosy.cli.jobkinds import declared_kind
from argosy.cli.local_mounts import Manifest
from argosy.cli.run import name_for, training_run_for_command
from argosy.kinds.trainingrun import TrainingRun

NAMES = {
    "command with a script: named after the script": (("python", "train.py", "--x"), r"train-[0-9a-f]{4}"),
    "command without a script: named after the program": (("/usr/bin/My_Tool",), r"my-tool-[0-9a-f]{4}"),
    "script whose name starts with a digit: named run": (("python", "01.py"), r"run-[0-9a-f]{4}"),
    "long name: truncated": (("x" * 80,), r"x{20}-[0-9a-f]{4}"),
}


@pytest.mark.parametrize(("command", "want"), NAMES.values(), ids=NAMES.keys())
def test_name_for(command: tuple[str, ...], want: str) -> None:
    assert re.fullmatch(want, name_for(command))


def test_a_command_becomes_a_valid_training_run() -> None:
    manifest = training_run_for_command("a", "pytorch", 4, 2, 5, "img", ("python", "train.py"))
    run = msgspec.convert(manifest, TrainingRun)
    assert run.spec.framework == "pytorch"
    assert run.spec.roles["worker"].replicas == 4
    assert run.spec.limits.restarts == 5
    assert run.metadata.annotations["argosy.dev/command"] == "python train.py"


def test_an_mpi_command_runs_in_the_launcher_with_idle_workers() -> None:
    manifest = training_run_for_command("a", "mpi", 3, 0, 3, "img", ("mpiexec", "x"))
    run = msgspec.convert(manifest, TrainingRun)
    assert sorted(run.spec.roles) == ["launcher", "worker"]
    assert "mpiexec" in str(run.spec.roles["launcher"].template)
    assert "mpiexec" not in str(run.spec.roles["worker"].template)


INVALID_FILES = {
    "missing file": (None, "No such file"),
    "file that is not YAML": ("a: [", "not YAML"),
    "duplicate key in a map": (
        "apiVersion: v1\nkind: A\nspec:\n  a: 1\n  b: 2\n  a: 3\n",
        'line 6, column 3: duplicate key "a"',
    ),
    "document without a kind": ("a: 1", "must have apiVersion and kind"),
    "document that is a list": ("- a", "must have apiVersion and kind"),
}


@pytest.mark.parametrize(("content", "want"), INVALID_FILES.values(), ids=INVALID_FILES.keys())
def test_an_invalid_file_is_an_error(content: str | None, want: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(click.ClickException, match=want):
        load(path)


def test_a_key_that_overrides_a_merged_key_is_not_a_duplicate(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: v1\nkind: A\nbase: &base {a: 1, b: 2}\nspec: {<<: *base, a: 3}\n")
    assert load(path)[0]["spec"] == {"a": 3, "b": 2}


KINDS: dict[str, tuple[Manifest, str | None]] = {
    "SpotInstanceJob": (
        {"apiVersion": "training.training.dcnlab.com/v1alpha1", "kind": "SpotInstanceJob"},
        "sij",
    ),
    "TrainingJob": ({"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": "TrainingJob"}, "tj"),
    "another object: no job": ({"apiVersion": "v1", "kind": "Secret"}, None),
    "the same kind of another group: no job": (
        {"apiVersion": "example.com/v1", "kind": "SpotInstanceJob"},
        None,
    ),
}


@pytest.mark.parametrize(("document", "want"), KINDS.values(), ids=KINDS)
def test_a_job_of_every_registered_api_can_be_run(document: Manifest, want: str | None) -> None:
    kind = declared_kind(document)
    assert (kind.short_name if kind else None) == want
