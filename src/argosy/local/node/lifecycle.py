"""Which container may start now, and whether the pod is over: the order of a pod's life, as pure functions.

Init containers run one after another; a sidecar (an init container that restarts always) only has to have
started before the next one runs; main containers start when all of these are through. When no main container
will run again the sidecars are stopped, last one first, and the pod is over.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from argosy.local.node.pod_state import ContainerReport, Ended
from argosy.local.node.runspec import ContainerPlan, Launch

RestartPolicy = Literal["Always", "OnFailure", "Never"]
_BACKOFF_FORGIVEN_AFTER = 600.0


def startable(launch: Launch, reports: Mapping[str, ContainerReport]) -> list[ContainerPlan]:
    """Containers that should be running and are not, in order; back-off is the caller's to honour."""
    wanted: list[ContainerPlan] = []
    for plan in launch["containers"]:
        report = reports[plan["name"]]
        if plan["kind"] == "main":
            if not report["running"] and will_run_again(plan, report, launch["restart_policy"]):
                wanted.append(plan)
            continue
        if plan["kind"] == "init" and completed(report):
            continue
        if not report["running"] and will_run_again(plan, report, launch["restart_policy"]):
            wanted.append(plan)
        if plan["kind"] == "init" or not (report["started"] and report["running"]):
            if plan["kind"] == "sidecar" and report["restarts"]:
                continue  # it held the others back once; a crash later does not
            return wanted
    return wanted


def will_run_again(plan: ContainerPlan, report: ContainerReport, policy: RestartPolicy) -> bool:
    ended = report["ended"]
    if ended is None:
        return not report["running"]
    if plan["kind"] == "sidecar":
        return True
    if plan["kind"] == "init":
        return ended["exit_code"] != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and ended["exit_code"] != 0)


def over(launch: Launch, reports: Mapping[str, ContainerReport]) -> bool:
    """Nothing but sidecars runs or ever will."""
    policy = launch["restart_policy"]
    for plan in launch["containers"]:
        report = reports[plan["name"]]
        if plan["kind"] == "init" and report["ended"] and not will_run_again(plan, report, policy):
            if not completed(report):
                return not report["running"]
            continue
        if plan["kind"] != "sidecar" and (report["running"] or will_run_again(plan, report, policy)):
            return False
    return True


def completed(report: ContainerReport) -> bool:
    return report["ended"] is not None and report["ended"]["exit_code"] == 0


def next_backoff(previous: float, ended: Ended, first: float, longest: float) -> float:
    """The pause before the restart after this one: none at first, then doubling, forgotten after a long good
    run.
    """
    if ended["finished"] - ended["started"] > _BACKOFF_FORGIVEN_AFTER:
        return 0.0
    return min(longest, previous * 2) if previous else first


def sidecars_to_stop(plans: Sequence[ContainerPlan], reports: Mapping[str, ContainerReport]) -> str | None:
    """The sidecar to stop next: the last one that still runs."""
    running = [p["name"] for p in plans if p["kind"] == "sidecar" and reports[p["name"]]["running"]]
    return running[-1] if running else None
