"""The samples of the conformance kit as real runs: pods find each other, fail, come back the same, end."""

import json

import pytest

from argosy.frameworks.base import Sample
from argosy.frameworks.registry import installed
from argosy.testing.frameworkkit import Case
from argosy.testing.probes import Probed, Told
from argosy.testing.samples import BUILT_IN
from argosy.testing.tenants import Tenant
from argosy.workload.model import Scope

OFTEN = ("dask: with a leader", "jax: workers")
"""The others only in `scripts/test --long`."""
CASES = {
    f"{name}: {sample.title}": (name, sample) for name, samples in BUILT_IN.items() for sample in samples
}
LIVE = {key: case for key, case in CASES.items() if case[1].elastic and case[0] != "custom"}
ITS_OWN = ("ARGOSY_ATTEMPT", "FOUND")


def params(cases: dict[str, tuple[str, Sample]]) -> list[object]:
    return [
        pytest.param(*case, id=key, marks=[] if key in OFTEN else [pytest.mark.long])
        for key, case in cases.items()
    ]


@pytest.mark.parametrize(("framework", "sample"), params(CASES))
def test_pods_find_each_other_and_come_back_the_same(tenant: Tenant, framework: str, sample: Sample) -> None:
    probed = Probed(tenant, framework, sample)
    probed.start()
    first = probed.told()
    hosts_are_pods(probed, first)
    ranks_are_dense(sample, first)
    victim = list(sample.roles)[-1]
    before = probed.pods()
    probed.end(victim, 3, 0)
    host = f"{probed.name}-{victim}-0"
    rules = Case(installed()[framework], sample).job.rules
    replaced = list(before) if rules.restart_scope is Scope.JOB else [host]
    probed.until_replaced(before, *replaced)
    again = probed.told()
    assert stable(again) == stable(first)
    hosts_are_pods(probed, {host: again[host] for host in replaced})  # those that stayed looked before
    for role in rules.succeeded_when[0]:
        probed.end(role, 0)
    status = tenant.until_phase(probed.name, "Succeeded", "Failed")
    tenant.kubectl("delete", "tr", probed.name)
    assert (status["phase"], status["restarts"]) == ("Succeeded", 1)


@pytest.mark.parametrize(("framework", "sample"), params(LIVE))
def test_a_new_size_leaves_those_alone_that_stay(tenant: Tenant, framework: str, sample: Sample) -> None:
    probed = Probed(tenant, framework, sample)
    probed.start()
    first, before = probed.told(), probed.pods()
    probed.scale("worker", sample.roles["worker"] + 1)
    after = probed.told()
    now = probed.pods()
    tenant.kubectl("delete", "tr", probed.name)
    assert len(after) == len(first) + 1
    assert {host: now[host] for host in before} == before


def test_a_pod_that_fails_for_good_fails_the_run(tenant: Tenant) -> None:
    probed = Probed(tenant, "standalone", BUILT_IN["standalone"][0])
    probed.start()
    for code in (3, 4):
        probed.told()
        before = probed.pods()
        probed.end("worker", code, 1)
        if code == 3:
            probed.until_replaced(before, f"{probed.name}-worker-1")
    status = tenant.until_phase(probed.name, "Succeeded", "Failed")
    tenant.kubectl("delete", "tr", probed.name)
    assert status["phase"] == "Failed"
    assert "worker-1 failed (exit 4)" in str(status["message"])


def hosts_are_pods(probed: Probed, told: dict[str, Told]) -> None:
    addresses = {host: address for host, (_, address) in probed.pods().items()}
    for variables in told.values():
        for name, address in json.loads(variables["FOUND"]).items():
            host = name.split(".")[0]
            assert address in ([addresses[host]] if host in addresses else addresses.values()), name


def ranks_are_dense(sample: Sample, told: dict[str, Told]) -> None:
    ranked = [one for one in told.values() if one["ARGOSY_ROLE"] in sample.ranked]
    if sample.rank:
        ranks = sorted(int(one[sample.rank]) for one in ranked)
        assert ranks == [number * sample.slots for number in range(len(ranked))]
    if sample.world:
        assert {int(one[sample.world]) for one in ranked} == {len(ranked) * sample.slots}


def stable(told: dict[str, Told]) -> dict[str, Told]:
    return {
        host: {name: value for name, value in variables.items() if name not in ITS_OWN}
        for host, variables in told.items()
    }
