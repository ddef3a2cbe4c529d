"""The conformance kit on real pods: `argosy conformance framework NAME --live`, and a test of all our own.

The kit without it looks at what an adapter answers; this looks at what pods see of that, on any cluster.
"""

import json

from argosy.frameworks.base import Framework, Sample
from argosy.testing.frameworkkit import Case
from argosy.testing.probes import Probed, Told
from argosy.testing.tenants import Tenant
from argosy.workload.model import Scope

SENTENCE = "pods find each other, come back the same, and the run ends well"
_THEIR_OWN = ("ARGOSY_ATTEMPT", "FOUND")


def check_live(tenant: Tenant, framework: Framework, sample: Sample) -> None:
    """Run the sample, let a pod fail, then let the run succeed; raises AssertionError with what is wrong."""
    rules = Case(framework, sample).job.rules
    probed = Probed(tenant, framework.name, sample)
    probed.start()
    try:
        first = probed.told()
        _hosts_are_pods(probed, first)
        _ranks_are_dense(sample, first)
        replaced = _fail_one(probed, list(sample.roles)[-1], rules.restart_scope)
        again = probed.told()
        for host in first:
            assert _stable(again[host]) == _stable(first[host]), f"{host} was told something else"
        # Those that stayed have looked before.
        _hosts_are_pods(probed, {host: again[host] for host in replaced})
        for role in rules.succeeded_when[0]:
            probed.end(role, 0)
        status = tenant.until_phase(probed.name, "Succeeded", "Failed")
        assert (status["phase"], status["restarts"]) == ("Succeeded", 1), status["message"]
    finally:
        tenant.kubectl("delete", "tr", probed.name)


def _fail_one(probed: Probed, role: str, scope: Scope) -> list[str]:
    """Let the first pod of a role fail; the hosts of all pods that were replaced for it."""
    before = probed.pods()
    probed.end(role, 3, 0)
    replaced = list(before) if scope is Scope.JOB else [f"{probed.name}-{role}-0"]
    probed.until_replaced(before, *replaced)
    return replaced


def _hosts_are_pods(probed: Probed, told: dict[str, Told]) -> None:
    addresses = {host: address for host, (_, address) in probed.pods().items()}
    for reader, variables in told.items():
        for name, address in json.loads(variables["FOUND"]).items():
            host = name.split(".")[0]
            wanted = [addresses[host]] if host in addresses else list(addresses.values())
            assert address in wanted, f"{reader} finds {name} at {address}, not at {wanted}"


def _ranks_are_dense(sample: Sample, told: dict[str, Told]) -> None:
    ranked = [one for one in told.values() if one["ARGOSY_ROLE"] in sample.ranked]
    if sample.rank:
        ranks = sorted(int(one[sample.rank]) for one in ranked)
        assert ranks == [number * sample.slots for number in range(len(ranked))], ranks
    if sample.world:
        worlds = {int(one[sample.world]) for one in ranked}
        assert worlds == {len(ranked) * sample.slots}, worlds


def _stable(variables: Told) -> Told:
    return {name: value for name, value in variables.items() if name not in _THEIR_OWN}
