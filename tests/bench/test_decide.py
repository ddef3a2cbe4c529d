"""The benchmark of decisions runs on a small scale and yields all its figures."""

import pytest

from bench import decide


def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "ROUNDS", 1)
    monkeypatch.setattr(decide, "LARGE", 40)
    monkeypatch.setattr(decide, "MIDDLE", 20)
    figures = {figure.name: figure for figure in decide.measure()}
    assert figures.keys() == {
        "decide_8_steady_us",
        "decide_8_starting_us",
        "decide_40_steady_ms",
        "decide_40_starting_ms",
        "decide_growth",
    }
    assert all(figure.value > figure.bound > 0 for name, figure in figures.items() if name != "decide_growth")
