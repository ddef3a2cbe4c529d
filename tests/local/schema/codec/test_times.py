"""Times as Go reads and writes them."""

import pytest

from argosy.local.schema.codec.times import TimeError, canonical_time

TIMES = {
    "2024-01-01T00:00:00Z": "2024-01-01T00:00:00Z",
    "2024-01-01T02:30:00+02:30": "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00.987Z": "2024-01-01T00:00:00Z",
}
WRONG = {
    "": 'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"',
    "tomorrow": 'parsing time "tomorrow" as "2006-01-02T15:04:05Z07:00": cannot parse "tomorrow" as "2006"',
    "2024-01-01": 'parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"',
    "2024-13-01T00:00:00Z": 'parsing time "2024-13-01T00:00:00Z": month out of range',
    "2024-02-30T00:00:00Z": 'parsing time "2024-02-30T00:00:00Z": day out of range',
    "2024-01-01T00:00:00Zx": 'parsing time "2024-01-01T00:00:00Zx": extra text: "x"',
}


@pytest.mark.parametrize(("text", "want"), TIMES.items())
def test_times_are_kept_in_utc_to_the_second(text: str, want: str) -> None:
    assert canonical_time(text) == want


def test_some_are_kept_to_the_microsecond() -> None:
    assert canonical_time("2024-01-01T02:00:00.000001+02:00", micro=True) == "2024-01-01T00:00:00.000001Z"


@pytest.mark.parametrize(("text", "want"), WRONG.items())
def test_what_is_no_time_is_told_as_go_tells_it(text: str, want: str) -> None:
    with pytest.raises(TimeError) as error:
        canonical_time(text)
    assert str(error.value) == want
