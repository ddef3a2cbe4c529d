"""Defines the time limits and the backoff of machines."""

from datetime import timedelta

from msgspec import Struct


class MachineSettings(Struct, frozen=True):
    """Time limits and backoff of machines. All times are in seconds."""

    join_timeout: float = 900.0
    max_join_attempts: int = 5
    pods_ready_grace: float = 120.0
    poll_seconds: float = 10.0
    busy_poll_seconds: float = 2.0
    """The same while something is being created or deleted in the zone."""
    lease_loss_timeout: float = 120.0
    zone_cooldown: float = 600.0
    quota_cooldown: float = 1800.0
    no_capacity_backoff: float = 60.0
    max_no_capacity_backoff: float = 600.0
    notice_seconds: float = 30.0
    """How long a machine is expected to run after a notice without a deadline."""
    retry_seconds: float = 2.0
    max_retry_seconds: float = 120.0
    late_seconds: float = 30.0
    """After this time a creation that was sent, and is not in the list of its zone, counts as not sent."""

    def backoff(self, tries: int) -> timedelta:
        """Return the time until a request is repeated that has failed so many times."""
        return timedelta(seconds=min(self.retry_seconds * 2.0 ** min(tries, 20), self.max_retry_seconds))

    def no_capacity(self, times: int) -> timedelta:
        """Return the time until all zones are asked again."""
        seconds = self.no_capacity_backoff * 2.0 ** min(times, 20)
        return timedelta(seconds=min(seconds, self.max_no_capacity_backoff))
