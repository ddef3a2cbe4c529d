"""`python -m tests.support.simulate --kubeconfig FILE --nodes 100`: the node simulator as its own process.

A benchmark runs it in a separate process so that its CPU time is not measured. Prints `ready` when its nodes
are registered; ends with SIGTERM or when its standard input closes, and then deletes its nodes if asked to.
"""

import argparse
import asyncio
import signal
import sys

from argosy.engine import loop
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.logs import configure_logging
from tests.support.simulator import Simulator


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.support.simulate", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--schedule", action="store_true", help="bind pods too, round robin")
    parser.add_argument("--exec-port", type=int, default=0, help="where commands in containers are answered")
    parser.add_argument("--remove", action="store_true", help="take the nodes away at the end")
    options = parser.parse_args()
    configure_logging("text", "warning")
    loop.run(_simulate(options))


async def _simulate(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    closed = running.create_task(_input_closed(stop))
    connection = Connection.from_kubeconfig(options.kubeconfig)
    async with Client(connection, user_agent="argosy-simulator") as client:
        nodes = Simulator(client, options.nodes, schedule=options.schedule, exec_port=options.exec_port)
        async with nodes as simulator:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await stop.wait()
        if options.remove:
            await simulator.remove()
    closed.cancel()


async def _input_closed(stop: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(1024):
        pass
    stop.set()


if __name__ == "__main__":
    main()
