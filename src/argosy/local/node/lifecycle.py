"""Decides which containers may start and whether a pod is over. Pure.

Init containers run one after another. A sidecar (an init container that always restarts) must only have
started before the next one runs. Main containers start when all init containers are done. When no main
container will run again, the sidecars are stopped, last one first, and the pod is over.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from argosy.local.node.pod_state import ContainerState, Termination
from argosy.local.node.runspec import ContainerConfig, RunSpec

RestartPolicy = Literal["Always", "OnFailure", "Never"]
_BACKOFF_RESET_SECONDS = 600.0


def containers_to_start(runspec: RunSpec, states: Mapping[str, ContainerState]) -> list[ContainerConfig]:
    """Return the containers that should be running and are not, in order, regardless of backoff."""
    wanted: list[ContainerConfig] = []
    for config in runspec["containers"]:
        state = states[config["name"]]
        if config["kind"] == "main":
            if not state["running"] and will_run_again(config, state, runspec["restart_policy"]):
                wanted.append(config)
            continue
        if config["kind"] == "init" and has_succeeded(state):
            continue
        if not state["running"] and will_run_again(config, state, runspec["restart_policy"]):
            wanted.append(config)
        if config["kind"] == "init" or not (state["started"] and state["running"]):
            if config["kind"] == "sidecar" and state["restarts"]:
                continue  # only its first start blocks other containers
            return wanted
    return wanted


def will_run_again(config: ContainerConfig, state: ContainerState, policy: RestartPolicy) -> bool:
    ended = state["ended"]
    if ended is None:
        return not state["running"]
    if config["kind"] == "sidecar":
        return True
    if config["kind"] == "init":
        return ended["exit_code"] != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and ended["exit_code"] != 0)


def is_pod_over(runspec: RunSpec, states: Mapping[str, ContainerState]) -> bool:
    """Return True if nothing but sidecars runs or will run again."""
    policy = runspec["restart_policy"]
    for config in runspec["containers"]:
        state = states[config["name"]]
        if config["kind"] == "init" and state["ended"] and not will_run_again(config, state, policy):
            if not has_succeeded(state):
                return not state["running"]
            continue
        if config["kind"] != "sidecar" and (state["running"] or will_run_again(config, state, policy)):
            return False
    return True


def has_succeeded(state: ContainerState) -> bool:
    return state["ended"] is not None and state["ended"]["exit_code"] == 0


def next_backoff(previous: float, ended: Termination, first: float, longest: float) -> float:
    """Return the backoff after the next one: it starts at `first`, doubles, and is reset by a long run."""
    if ended["finished"] - ended["started"] > _BACKOFF_RESET_SECONDS:
        return 0.0
    return min(longest, previous * 2) if previous else first


def format_duration(seconds: float) -> str:
    """Return a backoff as kubelets write it."""
    whole = int(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{seconds:g}s"


def next_sidecar_to_stop(
    configs: Sequence[ContainerConfig], states: Mapping[str, ContainerState]
) -> str | None:
    """Return the name of the last sidecar that still runs."""
    running = [p["name"] for p in configs if p["kind"] == "sidecar" and states[p["name"]]["running"]]
    return running[-1] if running else None
