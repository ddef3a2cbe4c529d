"""Schedules of checkpoints."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from argosy.checkpoint.schedules import InvalidScheduleError, parse_schedule

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

NEXT = {
    "immediately: once": ("immediately", None),
    "five fields": ("*/30 * * * *", datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
    "spaces around: the same": ("  0 0 * * *  ", datetime(2026, 3, 2, tzinfo=UTC)),
    "@hourly": ("@hourly", datetime(2026, 3, 1, 13, tzinfo=UTC)),
    "@daily": ("@daily", datetime(2026, 3, 2, tzinfo=UTC)),
    "@every": ("@every 1h30m", datetime(2026, 3, 1, 13, 30, tzinfo=UTC)),
    "day that comes in leap years": ("0 0 29 2 *", datetime(2028, 2, 29, tzinfo=UTC)),
}


@pytest.mark.parametrize("case", NEXT)
def test_next_time(case: str) -> None:
    text, want = NEXT[case]
    schedule = parse_schedule(text)
    assert schedule.next_after(NOON) == want
    assert schedule.repeats == (want is not None)


def test_times_are_in_utc() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert parse_schedule("@daily").next_after(elsewhere) == datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "@fortnightly",
        "@every",
        "@every 0s",
        "@every x",
        "0 0 30 2 *",
    ],
)
def test_invalid_schedule(text: str) -> None:
    with pytest.raises(InvalidScheduleError, match=r"spec\.schedule: invalid value .* must be `immediately`"):
        parse_schedule(text)
