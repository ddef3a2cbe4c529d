"""The benchmark of the node agent runs on a small scale and yields all its figures."""

import pytest

from bench.agent import Sizes, measure_on
from tests.support.servers import Server


@pytest.mark.long
@pytest.mark.timeout(120)
def test_every_figure_is_measured(api: Server) -> None:
    figures = {figure.name: figure for figure in measure_on(api, Sizes(rounds=2))}
    assert figures.keys() == {"agent_notice_s", "agent_notice_max_s"}
    assert all(figure.value > 0 < figure.bound and figure.line() for figure in figures.values())
