"""The time between checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.workload.save_intervals import adaptive_interval, estimate_mean_time_between_failures, jitter

INTERVALS = {
    "never failed: the given interval": (600.0, 10.0, None, 600.0),
    "fails every 2000 s and saving takes 4 s: sqrt(2 * 4 * 2000)": (600.0, 4.0, 2000.0, 126.491),
    "fails all the time: at least a minute": (600.0, 1.0, 10.0, 60.0),
    "hardly ever fails: at most the given interval": (600.0, 30.0, 1e7, 600.0),
    "a given interval of less than a minute: kept": (30.0, 1.0, 10.0, 30.0),
    "unknown cost: at least a minute": (600.0, 0.0, 2000.0, 60.0),
}


@pytest.mark.parametrize(("interval", "cost", "mean", "want"), INTERVALS.values(), ids=INTERVALS)
def test_adaptive_interval(interval: float, cost: float, mean: float | None, want: float) -> None:
    assert adaptive_interval(interval, cost, mean) == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(("running", "failures", "want"), [(3600, 0, None), (3600, 2, 1800), (-1, 1, 0)])
def test_mean_time_between_failures(running: float, failures: int, want: float | None) -> None:
    assert estimate_mean_time_between_failures(running, failures) == want


@given(st.text(), st.integers(0, 10**9), st.floats(0, 1e9))
def test_jitter_is_small_and_repeatable(identity: str, tick: int, interval: float) -> None:
    found = jitter(identity, tick, interval)
    assert 0 <= found <= min(interval * 0.05, 60)
    assert found == jitter(identity, tick, interval)


def test_jitter_spreads_jobs() -> None:
    assert len({round(jitter(f"job-{number}", 1, 1200)) for number in range(100)}) > 30
