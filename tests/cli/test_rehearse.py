"""Options of `argosy rehearse` are checked before anything is lost."""

import pytest
from click.testing import CliRunner

from argosy.cli.group import cli

REJECTED: dict[str, tuple[list[str], str]] = {
    "reclaim without a time: the option is named": (["reclaim", "node-1"], "Missing option '--in'"),
    "time without a unit: what is allowed": (
        ["reclaim", "node-1", "--in", "30"],
        "Invalid value for '--in': invalid duration '30': must be a number with a unit, like 90s",
    ),
    "time of more than a day: what is allowed": (
        ["stop-node", "node-1", "--for", "25h"],
        "invalid value 25h: must be at most 24h",
    ),
    "mistyped signal: a suggestion": (
        ["kill-pod", "a", "-n", "b", "--signal", "KIL"],
        'Invalid value for --signal: unknown signal KIL; did you mean "KILL"?',
    ),
    "signal that is no name: what is allowed": (
        ["kill-pod", "a", "-n", "b", "--signal", "9"],
        "unknown signal 9; must be a name such as KILL, TERM or SEGV",
    ),
    "story on another control plane: it has its own": (
        ["spot", "--story", "--context", "production"],
        "--story has its own control plane: not supported with --kubeconfig or --context",
    ),
    "capacity that is no number: what is allowed": (
        ["spot", "--story", "--capacity", "us-central1-a"],
        "Invalid value for --capacity: invalid value us-central1-a: must be ZONE=NUMBER",
    ),
    "mistyped command: a suggestion": (
        ["relcaim", "node-1"],
        'unknown command "relcaim"; did you mean `argosy rehearse reclaim`?',
    ),
}


@pytest.mark.parametrize(("words", "message"), REJECTED.values(), ids=REJECTED.keys())
def test_invalid_options_are_rejected(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["rehearse", *words])
    assert result.exit_code == 2
    assert message in result.output


def test_help_shows_an_example_of_each_loss() -> None:
    result = CliRunner().invoke(cli, ["rehearse", "--help"])
    for command in ("rehearse reclaim", "rehearse stop-node", "rehearse kill-pod", "nodes silence"):
        assert f"\n  argosy {command} " in result.output
