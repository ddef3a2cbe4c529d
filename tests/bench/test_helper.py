"""The benchmark of the helper's start runs, with its bound."""

import pytest

from bench import helper


def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "ROUNDS", 1)
    figures = {figure.name: figure for figure in helper.measure()}
    assert figures.keys() == {"helper_copy_ratio", "helper_wait_ratio", "initializer_ratio"}
    assert all(figure.value > 0 and figure.bound == 1 and figure.target for figure in figures.values())
