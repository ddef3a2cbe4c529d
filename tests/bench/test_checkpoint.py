"""The benchmark of checkpoints runs on a small scale and yields all its figures."""

import pytest

from bench.checkpoint import measure
from tests.support.s3_server import require_s3_server


@pytest.mark.long
def test_every_figure_is_measured() -> None:
    require_s3_server()
    figures = {figure.name: figure for figure in measure(ranks=2, rank_bytes=2**20, rounds=2)}
    assert figures.keys() == {
        "checkpoint_publish_mb_s",
        "checkpoint_publish_ratio",
        "checkpoint_restore_mb_s",
        "checkpoint_restore_ratio",
        "checkpoint_sent_again_share",
    }
    assert all(figure.value > 0 and figure.bound > 0 and figure.line() for figure in figures.values())
