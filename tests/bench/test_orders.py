"""The benchmark of orders runs on a small scale and yields all its figures."""

import pytest

from bench.orders import Sizes, measure_on
from tests.support.servers import Server


@pytest.mark.long
@pytest.mark.timeout(120)
def test_every_figure_is_measured(api: Server) -> None:
    figures = {figure.name: figure for figure in measure_on(api, Sizes(pods=3, rounds=1))}
    assert figures.keys() == {"notice_order_s", "checkpoint_ack_s", "notice_order_3_s"}
    assert all(figure.value > 0 for figure in figures.values())
    assert all(figure.bound > 0 and figure.line() for figure in figures.values())
