"""Times are converted to the form that Kubernetes stores."""

import pytest

from argosy.local.schema.codec.times import TimeError, canonical_time

TIMES = {
    "2024-01-01T00:00:00Z": "2024-01-01T00:00:00Z",
    "2024-01-01T02:30:00+02:30": "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00.987Z": "2024-01-01T00:00:00Z",
}
WRONG = {
    "empty: rejected": "",
    "not a time: rejected": "tomorrow",
    "a date without a time: rejected": "2024-01-01",
    "month 13: rejected": "2024-13-01T00:00:00Z",
    "February 30: rejected": "2024-02-30T00:00:00Z",
    "text after the zone: rejected": "2024-01-01T00:00:00Zx",
}


@pytest.mark.parametrize(("text", "want"), TIMES.items())
def test_times_are_converted_to_utc_in_seconds(text: str, want: str) -> None:
    assert canonical_time(text) == want


def test_micro_times_keep_microseconds() -> None:
    assert canonical_time("2024-01-01T02:00:00.000001+02:00", micro=True) == "2024-01-01T00:00:00.000001Z"


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(TimeError, match="is not a time"):
        canonical_time(text)
