"""`python -m argosy.local.controllers --state DIR`: the scheduler and all built-in controllers, one
process.
"""

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from argosy.engine import loop
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.local.controllers.nodes.collect import QUARANTINE
from argosy.local.controllers.nodes.controller import GRACE
from argosy.local.controllers.run import Timings, run
from argosy.local.state import State


def main() -> None:
    options = _parser().parse_args()
    grace = options.node_monitor_grace
    timings = Timings(
        node_grace=grace,
        longest_toleration=options.pod_eviction_timeout,
        quarantine=min(QUARANTINE, grace),
    )
    loop.run(_serve(State(options.state), timings))


async def _serve(state: State, timings: Timings) -> None:
    """Until SIGTERM or SIGINT."""
    connection = Connection.from_kubeconfig(state.kubeconfigs / "controllers")
    async with Client(
        connection, user_agent="argosy-controllers", field_manager="argosy-controllers"
    ) as client:
        work = asyncio.create_task(run(client, timings))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await work


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argosy.local.controllers", description=__doc__)
    parser.add_argument("--state", required=True, type=Path, help="the state folder of the control plane")
    parser.add_argument(
        "--node-monitor-grace",
        type=float,
        default=GRACE,
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
