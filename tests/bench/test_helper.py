"""The benchmark of the helper's start runs, and its bound is measured in the same run."""

import pytest

from bench import helper


def test_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "ROUNDS", 1)
    figures = {figure.name: figure for figure in helper.measure()}
    assert figures.keys() == {"helper_copy_ratio", "helper_wait_ratio", "initializer_ratio"}
    assert all(figure.value > 0 and figure.bound == 1 and figure.target for figure in figures.values())
