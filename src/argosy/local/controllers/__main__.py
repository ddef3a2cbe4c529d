"""Runs the scheduler and all built-in controllers (`python -m argosy.local.controllers --state DIR`)."""

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from argosy.engine import loop
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.gc_tuning import refreeze_periodically
from argosy.engine.kubeconfig import Connection
from argosy.engine.logs import configure_logging
from argosy.local.controllers.manager import Timings, run_controllers
from argosy.local.controllers.node_lifecycle.podgc import QUARANTINE_SECONDS
from argosy.local.processes import NODE_MONITOR_GRACE_SECONDS
from argosy.local.state import State

NAME = "argosy-controllers"
PAUSE = 0.05
ATTEMPTS = 200


def main() -> None:
    configure_logging("text")
    options = _parser().parse_args()
    grace = options.node_monitor_grace
    timings = Timings(
        node_grace=grace,
        max_toleration=options.pod_eviction_timeout,
        quarantine=min(QUARANTINE_SECONDS, grace),
    )
    loop.run(_serve(State(options.state), timings))


async def _serve(state: State, timings: Timings) -> None:
    """Run until SIGTERM or SIGINT."""
    connection = Connection.from_kubeconfig(state.kubeconfigs / "controllers")
    async with Client(connection, user_agent=NAME, field_manager=NAME) as client:
        work = asyncio.create_task(_work(client, timings))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def _work(client: Client, timings: Timings) -> None:
    await _server_ready(client)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_controllers(client, timings))
        tasks.create_task(refreeze_periodically())


async def _server_ready(client: Client) -> None:
    """Poll the API server, which starts at the same time: polling is faster than a backoff."""
    for _ in range(ATTEMPTS):
        try:
            await client.request("GET", "/readyz")
            return
        except ApiError:
            await asyncio.sleep(PAUSE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argosy.local.controllers", description=__doc__)
    parser.add_argument("--state", required=True, type=Path, help="the state folder of the control plane")
    parser.add_argument(
        "--node-monitor-grace",
        type=float,
        default=NODE_MONITOR_GRACE_SECONDS,
        metavar="SECONDS",
        help="a node silent for this long is taken for lost (default %(default)s)",
    )
    parser.add_argument(
        "--pod-eviction-timeout",
        type=float,
        default=None,
        metavar="SECONDS",
        help="pods leave a lost node after this long at the latest (default: what each pod tolerates)",
    )
    return parser


if __name__ == "__main__":
    main()
