"""The command line as a whole: helpful, quick, and never a traceback for a user's mistake."""

import subprocess
import sys

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
    *shown, modules = out.splitlines()
    assert all(any(line.strip().startswith(f"{name} ") for line in shown) for name in COMMANDS)
    assert modules == "['argosy.cli.main']"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["-h", "up"]])
def test_help_is_the_same_however_it_is_asked_for(words: list[str]) -> None:
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.output) == (0, help_text())


def test_waiting_for_a_control_plane_loads_nothing_that_only_others_need() -> None:
    program = (
        "import sys, argosy.cli.cluster, argosy.local.readiness\n"
        "print([m for m in ('cryptography', 'prometheus_client', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_table_exists(name: str) -> None:
    if name == "kubectl":
        pytest.skip("kubectl replaces this process")
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    result = CliRunner().invoke(cli, ["stauts"])
    assert result.exit_code == 2
    assert "did you mean `argosy status`?" in result.output


def test_nothing_running_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path))
    result = CliRunner().invoke(cli, ["status"])
    assert (result.exit_code, result.output) == (1, "not running; `argosy up` starts it\n")
