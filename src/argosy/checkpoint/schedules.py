"""Reads the schedules of checkpoints: once, by cron, or at an interval."""

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError
from msgspec import Struct

from argosy.kinds.migration import IMMEDIATELY
from argosy.kinds.quantity import parse_duration
from argosy.kinds.text import quote_value

EVERY = "@every "
_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class InvalidScheduleError(ValueError):
    """A schedule cannot be read; the message says why."""


class Schedule(Struct, frozen=True):
    """When checkpoints are made, after the first one, which is made at once."""

    cron: str = ""
    every: timedelta | None = None

    @property
    def repeats(self) -> bool:
        return bool(self.cron) or self.every is not None

    def next_after(self, time: datetime) -> datetime | None:
        """Return the first time of the schedule after this one, in UTC; None if there is none."""
        try:
            if self.every is not None:
                return time + self.every
            return next(CronSim(self.cron, time.astimezone(UTC)), None) if self.cron else None
        except (OverflowError, ValueError):  # after the year 9999
            return None


def parse_schedule(text: str) -> Schedule:
    """Return the schedule; raises InvalidScheduleError."""
    words = text.strip()
    if words == IMMEDIATELY:
        return Schedule()
    if words.startswith(EVERY):
        return Schedule(every=_interval(text, words.removeprefix(EVERY).strip()))
    cron = _NAMES.get(words, words)
    if len(cron.split()) != 5:
        raise _invalid(text)
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise _invalid(text, str(error)) from error
    return Schedule(cron)


def _interval(text: str, duration: str) -> timedelta:
    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        raise _invalid(text, str(error)) from error
    if not 1 <= seconds < 1e9:
        raise _invalid(text, "the interval must be at least a second")
    return timedelta(seconds=seconds)


def _invalid(text: str, problem: str = "") -> InvalidScheduleError:
    allowed = "must be `immediately`, five fields of cron, or @hourly, @daily, @weekly, @monthly, @yearly"
    detail = f" ({problem})" if problem else ""
    return InvalidScheduleError(f"spec.schedule: invalid value {quote_value(text)}{detail}: {allowed}")
