import pytest

from argosy.local.node.lifecycle import containers_to_start, is_pod_over, next_backoff
from argosy.local.node.pod_state import ContainerState, Termination, waiting_state
from argosy.local.node.runspec import ContainerConfig
from tests.support.runspecs import container_config, run_spec


def entry(name: str, state: str) -> ContainerState:
    """`.` not yet, R running, S running and started, a digit: ended so."""
    container = waiting_state(name, "")
    if state in "RS":
        container.update({"running": 1.0, "started": state == "S"})
    elif state != ".":
        container["ended"] = Termination(
            exit_code=int(state), signal=0, reason="", message="", started=0.0, finished=1.0
        )
    return container


def configs(kinds: str) -> list[ContainerConfig]:
    names = {"i": "init", "s": "sidecar", "m": "main"}
    return [container_config(f"{kind}{number}", "", kind=names[kind]) for number, kind in enumerate(kinds)]


CASES: dict[str, tuple[str, str, str, list[str], bool]] = {
    "new pod: first init container starts": ("iim", "...", "Never", ["i0"], False),
    "init container succeeded: the next starts": ("iim", "0..", "Never", ["i1"], False),
    "init container running: none starts": ("iim", "R..", "Never", [], False),
    "init container failed with Never: pod is over": ("iim", "1..", "Never", [], True),
    "init container failed with OnFailure: starts again": ("iim", "1..", "OnFailure", ["i0"], False),
    "sidecar not started yet: none starts": ("sim", "R..", "Never", [], False),
    "sidecar started: the next init container starts": ("sim", "S..", "Never", ["i1"], False),
    "init containers done: all main containers start": ("imm", "0..", "Never", ["m1", "m2"], False),
    "main container succeeded with OnFailure: pod is over": ("m", "0", "OnFailure", [], True),
    "main container failed with OnFailure: starts again": ("m", "1", "OnFailure", ["m0"], False),
    "main container succeeded with Always: starts again": ("m", "0", "Always", ["m0"], False),
    "only a sidecar running: pod is over": ("sm", "S0", "Never", [], True),
    "sidecar ended while a main container runs: starts again": ("sm", "0R", "Never", ["s0"], False),
}


@pytest.mark.parametrize("case", CASES)
def test_containers_to_start_and_end_of_the_pod(case: str) -> None:
    kinds, states, policy, want, want_over = CASES[case]
    runspec = run_spec(*configs(kinds), restart_policy=policy)
    names = [config["name"] for config in runspec["containers"]]
    reports = {name: entry(name, state) for name, state in zip(names, states, strict=True)}
    assert is_pod_over(runspec, reports) is want_over
    if not want_over:
        assert [config["name"] for config in containers_to_start(runspec, reports)] == want


def test_backoff_doubles_up_to_a_maximum_and_a_long_run_resets_it() -> None:
    short = Termination(exit_code=1, signal=0, reason="", message="", started=0.0, finished=1.0)
    pauses = [0.0]
    for _ in range(7):
        pauses.append(next_backoff(pauses[-1], short, 10, 300))
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    long = Termination(exit_code=1, signal=0, reason="", message="", started=0.0, finished=601.0)
    assert next_backoff(300, long, 10, 300) == 0
