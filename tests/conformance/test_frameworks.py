"""The samples of the conformance kit as real runs: pods find each other, fail, come back the same, end."""

import pytest

from argosy.frameworks.base import Sample
from argosy.frameworks.registry import installed
from argosy.testing.livekit import check_live
from argosy.testing.probes import Probed
from argosy.testing.samples import BUILT_IN
from argosy.testing.tenants import Tenant

OFTEN = ("dask: with a leader", "jax: workers")
"""The others only in `scripts/test --long`."""
CASES = {
    f"{name}: {sample.title}": (name, sample) for name, samples in BUILT_IN.items() for sample in samples
}
LIVE = {key: case for key, case in CASES.items() if case[1].elastic and case[0] != "custom"}


def params(cases: dict[str, tuple[str, Sample]]) -> list[object]:
    return [
        pytest.param(*case, id=key, marks=[] if key in OFTEN else [pytest.mark.long])
        for key, case in cases.items()
    ]


@pytest.mark.parametrize(("framework", "sample"), params(CASES))
def test_pods_find_each_other_and_come_back_the_same(tenant: Tenant, framework: str, sample: Sample) -> None:
    check_live(tenant, installed()[framework], sample)


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
