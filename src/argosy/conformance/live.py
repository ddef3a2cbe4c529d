"""Checks a framework adapter with real pods: `argosy conformance framework NAME --live`, on any cluster."""

import json

from argosy.conformance.contract import require
from argosy.conformance.kit import Case
from argosy.conformance.namespace import Namespace
from argosy.conformance.probe import ProbedRun, Variables
from argosy.frameworks.base import Framework, Sample
from argosy.workload.model import RestartScope

LIVE_CHECK = "pods reach each other, restart with the same values, and the job succeeds"
_CHANGES_AT_RESTART = ("ARGOSY_ATTEMPT", "ADDRESSES")


def check_live(namespace: Namespace, framework: Framework, sample: Sample) -> None:
    """Run the sample, let one pod fail, then let the job succeed; raise NonConformance on any difference."""
    rules = Case(framework, sample).job.rules
    run = ProbedRun(namespace, framework.name, sample)
    run.start()
    try:
        first = run.variables()
        _check_addresses(run, first)
        _check_ranks(sample, first)
        replaced = _fail_one(run, list(sample.roles)[-1], rules.restart_scope)
        again = run.variables()
        for host in first:
            require(
                _without_changing(again[host]) == _without_changing(first[host]),
                f"{host} has other variables after the restart",
            )
        # Pods that were not replaced looked up the others when some of those had other addresses.
        _check_addresses(run, {host: again[host] for host in replaced})
        for role in rules.succeeded_when[0]:
            run.end(role, 0)
        status = namespace.wait_for_phase(run.name, "Succeeded", "Failed")
        phase, restarts = status["phase"], status["restarts"]
        message = f"phase {phase} after {restarts} restarts: {status.get('message')}"
        require((phase, restarts) == ("Succeeded", 1), message)
    finally:
        namespace.kubectl("delete", "tr", run.name, code=None)


def _fail_one(run: ProbedRun, role: str, scope: RestartScope) -> list[str]:
    """Let the first pod of a role fail; return the host names of all pods that are replaced."""
    before = run.pods()
    run.end(role, 3, 0)
    replaced = list(before) if scope is RestartScope.JOB else [f"{run.name}-{role}-0"]
    run.wait_until_replaced(before, *replaced)
    return replaced


def _check_addresses(run: ProbedRun, variables: dict[str, Variables]) -> None:
    """Check that every host name that a pod looked up resolved to the right pod."""
    addresses = {host: address for host, (_, address) in run.pods().items()}
    for reader, environment in variables.items():
        for name, address in json.loads(environment["ADDRESSES"]).items():
            host = name.split(".")[0]
            expected = [addresses[host]] if host in addresses else list(addresses.values())
            require(address in expected, f"{reader}: {name} resolves to {address}, not to {expected}")


def _check_ranks(sample: Sample, variables: dict[str, Variables]) -> None:
    ranked = [values for values in variables.values() if values["ARGOSY_ROLE"] in sample.ranked_roles]
    if sample.rank_variable:
        ranks = sorted(int(values[sample.rank_variable]) for values in ranked)
        expected = [number * sample.slots for number in range(len(ranked))]
        require(ranks == expected, f"ranks are {ranks}, not {expected}")
    if sample.world_size_variable:
        worlds = {int(values[sample.world_size_variable]) for values in ranked}
        size = len(ranked) * sample.slots
        require(worlds == {size}, f"world sizes are {sorted(worlds)}, not {size}")


def _without_changing(variables: Variables) -> Variables:
    return {name: value for name, value in variables.items() if name not in _CHANGES_AT_RESTART}
