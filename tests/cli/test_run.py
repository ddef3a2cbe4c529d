"""From a command line to a TrainingRun."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from argosy.cli.documents import load
from argosy.cli.run import command_run, name_for
from argosy.kinds.trainingrun import TrainingRun

NAMES = {
    "the script gives the name": (("python", "train.py", "--x"), r"train-[0-9a-f]{4}"),
    "a program gives the name where there is no script": (("/usr/bin/My_Tool",), r"my-tool-[0-9a-f]{4}"),
    "a name begins with a letter": (("python", "01.py"), r"run-[0-9a-f]{4}"),
    "a long name is cut": (("x" * 80,), r"x{20}-[0-9a-f]{4}"),
}


@pytest.mark.parametrize(("command", "want"), NAMES.values(), ids=NAMES.keys())
def test_name(command: tuple[str, ...], want: str) -> None:
    assert re.fullmatch(want, name_for(command))


def test_a_command_becomes_a_run_that_the_kind_accepts() -> None:
    made = command_run("a", "pytorch", 4, 2, 5, "img", ("python", "train.py"))
    run = msgspec.convert(made, TrainingRun)
    assert run.spec.framework == "pytorch"
    assert run.spec.roles["worker"].replicas == 4
    assert run.spec.limits.restarts == 5
    assert run.metadata.annotations["argosy.dev/command"] == "python train.py"


def test_an_mpi_command_runs_in_a_launcher_beside_idle_workers() -> None:
    made = command_run("a", "mpi", 3, 0, 3, "img", ("mpiexec", "x"))
    run = msgspec.convert(made, TrainingRun)
    assert sorted(run.spec.roles) == ["launcher", "worker"]
    assert "mpiexec" in str(run.spec.roles["launcher"].template)
    assert "mpiexec" not in str(run.spec.roles["worker"].template)


MISTAKES = {
    "a file that is not there": (None, "No such file"),
    "a file that is no YAML": ("a: [", "not YAML"),
    "a key that stands twice in one map": (
        "apiVersion: v1\nkind: A\nspec:\n  a: 1\n  b: 2\n  a: 3\n",
        'line 6, column 3: duplicate key "a"',
    ),
    "a document without a kind": ("a: 1", "needs `apiVersion` and `kind`"),
    "a document that is a list": ("- a", "needs `apiVersion` and `kind`"),
}


@pytest.mark.parametrize(("content", "want"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_file_is_one_clear_line(content: str | None, want: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(click.ClickException, match=want):
        load(path)


def test_a_key_that_overrides_a_merged_one_is_no_duplicate(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: v1\nkind: A\nbase: &base {a: 1, b: 2}\nspec: {<<: *base, a: 3}\n")
    assert load(path)[0]["spec"] == {"a": 3, "b": 2}
