"""The `argosy` command as a whole: help, lazy imports and unknown commands."""

import inspect
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from argosy.cli.group import cli
from argosy.cli.main import COMMANDS, help_text


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from argosy.cli.main import main; sys.argv = ['argosy', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('argosy.cli.') or m in ('click', 'yaml')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *lines, modules = out.splitlines()
    assert all(any(line.strip().startswith(f"{name} ") for line in lines) for name in COMMANDS)
    assert modules == "['argosy.cli.main']"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["-h", "up"]])
def test_help_is_the_same_for_every_spelling(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.output) == (0, help_text())


def test_up_does_not_import_modules_of_other_commands() -> None:
    program = (
        "import sys, argosy.cli.cluster, argosy.local.readiness\n"
        "print([m for m in ('cryptography', 'prometheus_client', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_the_first_paragraph_of_its_docstring(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help is not None
    paragraph = inspect.cleandoc(command.help).split("\n\n")[0]
    assert COMMANDS[name][1] == " ".join(paragraph.split())


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "kubectl"])  # kubectl has its own help
def test_every_command_prints_its_help(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli, ["stauts"])
    assert result.exit_code == 2
    assert "did you mean `argosy status`?" in result.output


def test_status_without_a_control_plane(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path))
    result = CliRunner().invoke(cli, ["status"])
    assert (result.exit_code, result.output) == (1, "not running; `argosy up` starts it\n")
