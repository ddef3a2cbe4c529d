"""The samples of the conformance kit as real jobs: pods reach each other, fail, restart and succeed."""

import pytest

from argosy.conformance.live import check_live
from argosy.conformance.namespace import Namespace
from argosy.conformance.probe import ProbedRun
from argosy.conformance.samples import BUILT_IN
from argosy.frameworks.base import Sample
from argosy.frameworks.registry import installed
from tests.support.user import User

DEFAULT_CASES = ("dask: with a leader", "jax: workers")
"""The cases of the default run; the others run in `scripts/test --long`."""
CASES = {
    f"{name}: {sample.title}": (name, sample) for name, samples in BUILT_IN.items() for sample in samples
}
LIVE = {key: case for key, case in CASES.items() if case[1].elastic and case[0] != "custom"}


def params(cases: dict[str, tuple[str, Sample]]) -> list[object]:
    return [
        pytest.param(*case, id=key, marks=[] if key in DEFAULT_CASES else [pytest.mark.long])
        for key, case in cases.items()
    ]


@pytest.mark.long_on_cluster
@pytest.mark.parametrize(("framework", "sample"), params(CASES))
def test_sample_runs_live_and_replaced_pods_get_the_same_variables(
    user: User, framework: str, sample: Sample
) -> None:
    check_live(_namespace(user), installed()[framework], sample)


def _namespace(user: User) -> Namespace:
    return Namespace(user.target.kubeconfig, user.namespace)


@pytest.mark.parametrize(("framework", "sample"), params(LIVE))
def test_scaling_up_does_not_restart_existing_pods(user: User, framework: str, sample: Sample) -> None:
    run = ProbedRun(_namespace(user), framework, sample)
    run.start()
    first, before = run.variables(), run.pods()
    run.sizes["worker"] += 1
    user.argosy("scale", run.name, str(run.sizes["worker"]), "--role", "worker")
    after = run.variables()
    now = run.pods()
    user.kubectl("delete", "tr", run.name)
    assert len(after) == len(first) + 1
    assert {host: now[host] for host in before} == before


def test_second_failure_of_a_pod_without_restarts_left_fails_the_run(user: User) -> None:
    run = ProbedRun(_namespace(user), "standalone", BUILT_IN["standalone"][0])
    run.start()
    for code in (3, 4):
        run.variables()
        before = run.pods()
        run.end("worker", code, 1)
        if code == 3:
            run.wait_until_replaced(before, f"{run.name}-worker-1")
    status = user.wait_for_phase(run.name, "Succeeded", "Failed")
    user.kubectl("delete", "tr", run.name)
    assert status["phase"] == "Failed"
    assert "worker-1 failed (exit 4)" in str(status["message"])
