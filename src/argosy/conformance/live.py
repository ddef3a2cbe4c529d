"""The conformance kit on real pods: `argosy conformance framework NAME --live`, on any cluster.

The kit without it looks at what an adapter answers; this looks at what pods see of that.
"""

import json

from argosy.conformance.contract import require
from argosy.conformance.kit import Case
from argosy.conformance.namespace import Namespace
from argosy.conformance.probe import ProbedRun, Variables
from argosy.frameworks.base import Framework, Sample
from argosy.workload.model import Scope

LIVE_CHECK = "pods find each other, come back the same, and the run ends well"
_DIFFER_AFTER_RESTART = ("ARGOSY_ATTEMPT", "FOUND")


def check_live(namespace: Namespace, framework: Framework, sample: Sample) -> None:
    """Run the sample, let one pod fail, then let the run succeed; raise NonConformance with what is wrong."""
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
            require(_stable(again[host]) == _stable(first[host]), f"{host} was told something else")
        # Pods that stayed looked up the others before, when some of those had other addresses.
        _check_addresses(run, {host: again[host] for host in replaced})
        for role in rules.succeeded_when[0]:
            run.end(role, 0)
        status = namespace.wait_for_phase(run.name, "Succeeded", "Failed")
        ended = (status["phase"], status["restarts"])
        require(ended == ("Succeeded", 1), f"{ended[0]} after {ended[1]} restarts: {status.get('message')}")
    finally:
        namespace.kubectl("delete", "tr", run.name, code=None)


def _fail_one(run: ProbedRun, role: str, scope: Scope) -> list[str]:
    """Let the first pod of a role fail; return the hosts of all pods that were replaced for it."""
    before = run.pods()
    run.end(role, 3, 0)
    replaced = list(before) if scope is Scope.JOB else [f"{run.name}-{role}-0"]
    run.wait_until_replaced(before, *replaced)
    return replaced


def _check_addresses(run: ProbedRun, variables: dict[str, Variables]) -> None:
    """Check that every name that a pod looked up led to a pod of the run, and to the right one."""
    addresses = {host: address for host, (_, address) in run.pods().items()}
    for reader, given in variables.items():
        for name, address in json.loads(given["FOUND"]).items():
            host = name.split(".")[0]
            wanted = [addresses[host]] if host in addresses else list(addresses.values())
            require(address in wanted, f"{reader} finds {name} at {address}, not at {wanted}")


def _check_ranks(sample: Sample, variables: dict[str, Variables]) -> None:
    ranked = [given for given in variables.values() if given["ARGOSY_ROLE"] in sample.ranked]
    if sample.rank:
        ranks = sorted(int(given[sample.rank]) for given in ranked)
        wanted = [number * sample.slots for number in range(len(ranked))]
        require(ranks == wanted, f"ranks are {ranks}, not {wanted}")
    if sample.world:
        worlds = {int(given[sample.world]) for given in ranked}
        size = len(ranked) * sample.slots
        require(worlds == {size}, f"world sizes are {sorted(worlds)}, not {size}")


def _stable(variables: Variables) -> Variables:
    return {name: value for name, value in variables.items() if name not in _DIFFER_AFTER_RESTART}
