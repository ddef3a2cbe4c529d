"""Fetches views regularly while objects need them; see `plan.contract.View`.

A view is fetched from the first reconcile that names it until five minutes after the last object has stopped
naming it. There is one poll for each scope, interval and credentials; with credentials, one for each
namespace, because what another namespace may use and see must not depend on who asked first. A failed fetch
is a state with a problem, and the last value stays.

Views belong to one term of leadership: when it ends, polls are cancelled and values are forgotten.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metrics
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.contract import View, ViewState
from argosy.plan.drivers import Refusal
from argosy.reconcile.drivers import Drivers, NoCredentialsError

log = Logger(__name__)

UNUSED_SECONDS = 300.0
"""How long a view is fetched after the last object has stopped naming it."""

MAX_FETCHES_PER_NAMESPACE = 8
"""Fetches for one namespace that run at a time: services that do not answer must not hold up others."""

MIN_INTERVAL_SECONDS = 0.1


class ViewUser(Protocol):
    """One kind's reconciles, which name views."""

    def needs_view(self, view: View, namespace: str) -> bool:
        """Return True if an object named the view in its last reconcile; any namespace if it is empty."""

    def view_changed(self, view: View, namespace: str) -> None:
        """Called when the value or the problem of a view has changed."""


class _PollKey(NamedTuple):
    namespace: str
    """Empty for a view without credentials, which is the same for all namespaces."""
    view: View


@dataclass(eq=False)
class _Poll:
    task: "asyncio.Task[None]"
    last_needed: float
    state: ViewState = field(default_factory=ViewState)


@dataclass(eq=False)
class _Slots:
    semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_FETCHES_PER_NAMESPACE))
    users: int = 0


class Views:
    """The views of all kinds."""

    def __init__(self, drivers: Drivers, clock: Clock, metrics: Metrics | None = None) -> None:
        self._drivers = drivers
        self._clock = clock
        metrics = metrics or Metrics()
        self._fetches = metrics.view_fetches
        metrics.views.set_function(lambda: len(self._polls))
        self._leads = False
        self._polls: dict[_PollKey, _Poll] = {}
        self._slots: dict[str, _Slots] = {}
        self._users: list[ViewUser] = []

    def subscribe(self, user: ViewUser) -> None:
        self._users.append(user)

    def begin_term(self) -> None:
        """Start polls when views are named from now on."""
        self._leads = True

    async def end_term(self) -> None:
        """Cancel all polls, and forget what they have fetched."""
        self._leads = False
        tasks = [poll.task for poll in self._polls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._polls.clear()

    def state(self, namespace: str, view: View) -> ViewState:
        """Return what is known of a view, and keep it current from now on."""
        key = _PollKey(namespace if view.credentials else "", view)
        poll = self._polls.get(key)
        if poll is None:
            if not self._leads:
                return ViewState()
            task = asyncio.create_task(self._run(key))
            poll = self._polls[key] = _Poll(task, self._clock.monotonic())
        return poll.state

    async def _run(self, key: _PollKey) -> None:
        poll = self._polls[key]
        try:
            while True:
                before, poll.state = poll.state, await self._fetch(key, poll.state)
                if (before.value, before.problem) != (poll.state.value, poll.state.problem):
                    self._notify(key)
                if not self._is_needed(key, poll):
                    return
                await asyncio.sleep(max(key.view.interval_seconds, MIN_INTERVAL_SECONDS))
        finally:
            if self._polls.get(key) is poll:
                del self._polls[key]

    def _is_needed(self, key: _PollKey, poll: _Poll) -> bool:
        now = self._clock.monotonic()
        if any(user.needs_view(key.view, key.namespace) for user in self._users):
            poll.last_needed = now
        return now - poll.last_needed < UNUSED_SECONDS

    def _notify(self, key: _PollKey) -> None:
        for user in self._users:
            user.view_changed(key.view, key.namespace)

    async def _fetch(self, key: _PollKey, before: ViewState) -> ViewState:
        slots = self._slots.setdefault(key.namespace, _Slots())
        slots.users += 1
        try:
            async with slots.semaphore:
                return await self._fetch_now(key, before)
        finally:
            slots.users -= 1
            if not slots.users:
                del self._slots[key.namespace]

    async def _fetch_now(self, key: _PollKey, before: ViewState) -> ViewState:
        began, driver = self._clock.now(), key.view.driver
        try:
            value = await self._drivers.fetch(key.namespace, key.view)
        except NoCredentialsError as error:
            problem, result = str(error), "no-credentials"
        except Refusal as refusal:
            problem, result = str(refusal), "refused"
        except ApiError as error:
            problem, result = error.message or error.reason, "unavailable"
        except TimeoutError:
            problem, result = f"{driver}: no answer in time", "unavailable"
        except OSError as error:
            problem, result = f"{driver}: {error}", "unavailable"
        except Exception as error:
            log.warning("view failed", driver=driver, exc_info=error)
            problem, result = repr(error), "unavailable"
        else:
            self._fetches.labels(driver, "success").inc()
            return ViewState(value, began)
        self._fetches.labels(driver, result).inc()
        return ViewState(before.value, before.at, truncate(problem, MAX_MESSAGE_CHARS))
