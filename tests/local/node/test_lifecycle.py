import pytest

from argosy.local.node.lifecycle import containers_to_start, is_pod_over, next_backoff
from argosy.local.node.pod_state import ContainerState, Termination, waiting_state
from argosy.local.node.runspec import ContainerPlan
from tests.support.runspecs import container_plan, run_spec


def entry(name: str, state: str) -> ContainerState:
    """`.` not yet, R running, S running and started, a digit: ended so."""
    found = waiting_state(name, "")
    if state in "RS":
        found.update({"running": 1.0, "started": state == "S"})
    elif state != ".":
        found["ended"] = Termination(
            exit_code=int(state), signal=0, reason="", message="", started=0.0, finished=1.0
        )
    return found


def plans(kinds: str) -> list[ContainerPlan]:
    names = {"i": "init", "s": "sidecar", "m": "main"}
    return [container_plan(f"{kind}{number}", "", kind=names[kind]) for number, kind in enumerate(kinds)]


CASES: dict[str, tuple[str, str, str, list[str], bool]] = {
    "the first init container first": ("iim", "...", "Never", ["i0"], False),
    "the next when it has ended well": ("iim", "0..", "Never", ["i1"], False),
    "none while one runs": ("iim", "R..", "Never", [], False),
    "a failed one fails the pod": ("iim", "1..", "Never", [], True),
    "or is tried again": ("iim", "1..", "OnFailure", ["i0"], False),
    "a sidecar holds the next back until it has started": ("sim", "R..", "Never", [], False),
    "and no longer": ("sim", "S..", "Never", ["i1"], False),
    "main containers together": ("imm", "0..", "Never", ["m1", "m2"], False),
    "a main container that ended well stays so": ("m", "0", "OnFailure", [], True),
    "one that failed runs again": ("m", "1", "OnFailure", ["m0"], False),
    "one that always runs": ("m", "0", "Always", ["m0"], False),
    "a sidecar alone does not keep a pod": ("sm", "S0", "Never", [], True),
    "a sidecar that ended runs again beside a main container": ("sm", "0R", "Never", ["s0"], False),
}


@pytest.mark.parametrize("sentence", CASES)
def test_what_starts_and_whether_it_is_over(sentence: str) -> None:
    kinds, states, policy, want, want_over = CASES[sentence]
    runspec = run_spec(*plans(kinds), restart_policy=policy)
    names = [plan["name"] for plan in runspec["containers"]]
    reports = {name: entry(name, state) for name, state in zip(names, states, strict=True)}
    assert is_pod_over(runspec, reports) is want_over
    if not want_over:
        assert [plan["name"] for plan in containers_to_start(runspec, reports)] == want


def test_pauses_double_up_to_a_limit_and_a_long_run_forgives() -> None:
    short = Termination(exit_code=1, signal=0, reason="", message="", started=0.0, finished=1.0)
    pauses = [0.0]
    for _ in range(7):
        pauses.append(next_backoff(pauses[-1], short, 10, 300))
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    long = Termination(exit_code=1, signal=0, reason="", message="", started=0.0, finished=601.0)
    assert next_backoff(300, long, 10, 300) == 0
