"""The benchmark of promptness, at a size at which it says nothing but that it works."""

import pytest

from bench.prompt import Sizes, measured
from tests.support.servers import Server


@pytest.mark.timeout(120)
def test_waiting_pods_are_let_go_and_a_lost_node_is_told(api: Server) -> None:
    figures = {figure.name: figure for figure in measured(api, Sizes(waiting=3, jobs=2, rounds=1))}
    assert figures.keys() == {"release_s", "release_ares_s", "node_down_s"}
    assert all(figure.value > 0 for figure in figures.values())
    assert all(figure.bound > 0 and figure.line() for figure in figures.values())
