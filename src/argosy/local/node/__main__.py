"""Runs the node agent (`python -m argosy.local.node --state DIR`); `--stop` ends all of its pods."""

import argparse
import asyncio
import os
import socket
import sys
import time
from ipaddress import IPv4Network
from pathlib import Path

from argosy.local.node import egress, namespace_holder, shim_manager
from argosy.local.node.settings import Settings

_STOP_SECONDS = 10.0


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    state: Path = options.state.resolve()
    folder = state / "pods"
    if options.stop:
        return stop(state, folder)
    rootless = options.rootless or (os.geteuid() != 0 and not options.root)
    settings = Settings(
        state=state,
        nodes=options.nodes,
        pretend_gpus=options.pretend_gpus,
        images=dict(entry.split("=", 1) for entry in options.image),
        rootless=rootless,
        pod_network=IPv4Network(options.pod_network),
        first_backoff=options.first_backoff,
        longest_backoff=options.longest_backoff,
        heartbeat=options.heartbeat,
        log_retention=options.log_retention,
    )
    for part in (folder, state / "logs"):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    starting = namespace_holder.PendingHolder(folder, rootless=rootless)
    from argosy.local.node.agent_main import run_agent  # while the holder starts; not needed to stop

    try:
        notes, outside = enter_namespaces(settings, starting)
    except namespace_holder.NamespacesForbiddenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    asyncio.run(run_agent(settings, outside, notes))
    return 0


def enter_namespaces(
    settings: Settings, starting: namespace_holder.PendingHolder
) -> tuple[list[str], socket.socket]:
    """Enter the cluster's namespaces; return a socket outside of them, for the host's resolvers."""
    from argosy.local.node import cgroups, rootfs, runspec_builder

    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    outside.bind(("0.0.0.0", 0))  # noqa: S104 (a client's socket: any address, any port)
    pid = starting.wait()
    if settings.rootless:
        notes = egress.start_pasta(settings.pods, pid)
    else:
        notes = egress.configure_host(settings.state, pid)
    namespace_holder.enter(pid, rootless=settings.rootless)
    if not notes:
        notes = egress.configure_cluster(settings.state, settings.pod_network, rootless=settings.rootless)
    if settings.rootless:
        notes.append("limits are by rlimit: cgroups belong to root")
        notes += rootfs.rootless_notes(settings.pods, runspec_builder.hidden_folders(settings.state))
    elif cgroups.find_usable_hierarchy(shim_manager.pods_cgroup(settings.pods)) is None:
        notes.append("limits are by rlimit: no cgroup can be made here")
    for note in notes:
        sys.stderr.write(f"{note}\n")
    return notes, outside


def stop(state: Path, folder: Path) -> int:
    """End zygote, pods and namespaces, and wait until they have ended."""
    shim_manager.kill_all(folder)
    deadline = time.monotonic() + _STOP_SECONDS
    while any(shim_manager.has_shim(entry) for entry in folder.glob("*/")) and time.monotonic() < deadline:
        time.sleep(0.01)
    while os.geteuid() == 0 and not shim_manager.remove_cgroups(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    namespace_holder.stop(folder)
    shim_manager.kill_recorded_process(folder / egress.PASTA_FILE)
    if os.geteuid() == 0:
        egress.remove(state)
    left = [entry.name for entry in folder.glob("*/") if shim_manager.has_shim(entry)]
    if left:
        sys.stderr.write(f"these pods did not end: {', '.join(left)}\n")
    return 1 if left else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m argosy.local.node", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the cluster's state folder")
    parser.add_argument("--stop", action="store_true", help="end every pod of the state folder and leave")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--pretend-gpus", type=int, default=0, help="GPUs per node that are not there")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--pod-network", default="10.88.0.0/16")
    parser.add_argument("--first-backoff", type=float, default=10.0)
    parser.add_argument("--longest-backoff", type=float, default=300.0)
    parser.add_argument("--heartbeat", type=float, default=10.0)
    parser.add_argument(
        "--log-retention", type=float, default=30.0, help="seconds for which logs of deleted pods are kept"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--rootless", action="store_true")
    mode.add_argument("--root", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
