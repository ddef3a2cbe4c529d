"""Tests for the checks that make a replica unready or unhealthy."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.operator.health import CheckResult
from argosy.operator.health_checks import (
    MAX_CACHE_AGE_SECONDS,
    MAX_LEASE_AGE_SECONDS,
    MAX_LEASE_OVERRUN_SECONDS,
    MAX_RECONCILE_SECONDS,
    MAX_STALL_SECONDS,
    live_checks,
    ready_checks,
)
from argosy.operator.manager import Manager
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually


def serving(
    missing: str = "", age: float = 0.0, *, stalled: float = 0.0, longest_running: float = 0.0
) -> Manager:
    stub = SimpleNamespace(
        not_ready=lambda: missing,
        oldest_cache=lambda: ("Pod", age),
        stalled=stalled,
        longest_running=longest_running,
    )
    return cast("Manager", stub)


CACHES = {
    "caches not synced: not ready": (serving("not synced: Pod"), CheckResult(False, "not synced: Pod")),
    "no event for too long: not ready": (
        serving(age=MAX_CACHE_AGE_SECONDS + 1),
        CheckResult(False, "no event of Pod for 301 s"),
    ),
    "synced caches with recent events: ready": (
        serving(age=9),
        CheckResult(True, "synced; last event 9 s ago"),
    ),
}


@pytest.mark.parametrize(("replica", "want"), CACHES.values(), ids=CACHES.keys())
def test_readiness_by_caches(replica: Manager, want: CheckResult) -> None:
    caches, lease = ready_checks(replica, None)
    assert caches.run() == want
    assert lease.run() == CheckResult(True, "leader election is off")


def test_reconciles_that_do_not_end_make_the_replica_unhealthy() -> None:
    def look(replica: Manager) -> bool:
        return live_checks(replica, None)[0].run().ok

    assert look(serving(stalled=MAX_STALL_SECONDS, longest_running=MAX_RECONCILE_SECONDS))
    assert not look(serving(stalled=MAX_STALL_SECONDS + 1))
    assert not look(serving(longest_running=MAX_RECONCILE_SECONDS + 1))


async def test_replica_is_ready_while_it_can_read_the_lease() -> None:
    async with FakeServer() as server, Client(server.connection()) as client:
        clock = ManualClock()
        first = Leader(client, "lease", "default", "first", clock=clock)
        second = Leader(client, "lease", "default", "second", clock=clock)
        look = ready_checks(serving(), second)[1].run
        assert look() == CheckResult(False, "not read yet")
        with captured_lines():
            server.faults.append(Fault(403))
            assert not await second._try_within(5)
        assert not look().ok
        assert "not read yet: " in look().message
        assert await first._try_within(5)
        assert ready_checks(serving(), first)[1].run() == CheckResult(True, "leading")
        assert not await second._try_within(5)
        assert look() == CheckResult(True, "standby; leader is first")
        clock.advance(MAX_LEASE_AGE_SECONDS + 1)
        assert look() == CheckResult(False, "not read for 31 s")


async def test_controllers_that_run_without_the_lease_make_the_replica_unhealthy() -> None:
    async with FakeServer() as server, Client(server.connection()) as client:
        clock, stuck, let_go = ManualClock(), asyncio.Event(), asyncio.Event()
        leader = Leader(
            client, "lease", "default", "me", duration=0.4, renew_deadline=0.2, retry=0.1, clock=clock
        )
        look = live_checks(serving(), leader)[1].run

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stuck.set()
                await let_go.wait()

        running = asyncio.create_task(leader.run(work))
        await eventually(lambda: leader.is_leader)
        assert look() == CheckResult(True, "leading")
        with captured_lines():
            clock.advance(1)
            await stuck.wait()
            assert look().ok, "it may take a while to come to an end"
            clock.advance(MAX_LEASE_OVERRUN_SECONDS + 1)
            assert look() == CheckResult(False, "controllers still run 31 s after the lease was lost")
            let_go.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert look() == CheckResult(True, "not leading")


def test_checks_send_no_requests() -> None:
    """A probe must be answered at once, whatever the API server does."""
    leader = Leader(Client(Connection("http://127.0.0.1:1")), "lease", "default", "me")
    for check in (*live_checks(serving(), leader), *ready_checks(serving(), leader)):
        assert check.run().message
