"""The connection to the nodes of a local control plane, and the durations of its options."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner

from argosy.cli.group import cli
from argosy.cli.local_nodes import duration, seconds_until
from tests.support.servers import Server

COMMANDS = {
    "list": ["nodes"],
    "add": ["nodes", "add"],
    "remove": ["nodes", "remove", "node-1"],
    "cordon": ["nodes", "cordon", "node-1"],
    "silence": ["nodes", "silence", "node-1"],
    "reclaim": ["rehearse", "reclaim", "node-1", "--in", "1s"],
    "stop-node": ["rehearse", "stop-node", "node-1"],
    "kill-pod": ["rehearse", "kill-pod", "worker-0"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_cluster_that_is_not_a_local_control_plane_is_refused(
    real_apiserver: Server, words: list[str]
) -> None:
    result = CliRunner().invoke(cli, [*words, "--kubeconfig", str(real_apiserver.kubeconfig)])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: {real_apiserver.url}: not a local control plane, or not yours; "
        "`argosy nodes` and `argosy rehearse` change only nodes that `argosy up` started\n"
    )


DURATIONS = {"30s": 30.0, "1m30s": 90.0, "500ms": 0.5, "0s": 0.0, "24h": 86400.0}


@pytest.mark.parametrize(("text", "want"), DURATIONS.items())
def test_durations_have_a_number_and_a_unit(text: str, want: float) -> None:
    assert duration(text) == want


@pytest.mark.parametrize("text", ["30", "-5s", "soon", "", "25h"])
def test_other_durations_are_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be"):
        duration(text)


def test_time_that_is_left_is_never_negative() -> None:
    assert seconds_until(datetime.now(UTC) + timedelta(seconds=90.2)) == "1 m 30 s"
    assert seconds_until(datetime.now(UTC) - timedelta(seconds=3)) == "0 s"
