import pytest

from argosy.workload import children
from argosy.workload.model import Rules
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import CreatePod, EnsureChild, EnsureService, EnsureSshSecret
from tests.support.workloads import pod, role, workload

JOB = workload(
    role("launcher", 1),
    role("worker", 2),
    role("watcher", 1),
    rules=Rules(services=("worker",), exec_from=("launcher",), exec_into=("launcher", "worker")),
)
PODS = (pod(0, role="launcher"), pod(0), pod(1), pod(0, role="watcher"))


def ensured(seen: Observed) -> dict[str, EnsureChild]:
    return {each.kind: each for each in children.missing_children(JOB, seen) if isinstance(each, EnsureChild)}


def digests(seen: Observed) -> dict[tuple[str, str], str]:
    return {(each.kind, each.name): each.digest for each in ensured(seen).values()}


def test_everything_is_made_once() -> None:
    seen = Observed(pods=PODS)
    assert [
        each.name for each in children.missing_children(JOB, seen) if isinstance(each, EnsureService)
    ] == ["job-worker"]
    assert list(ensured(seen)) == ["ServiceAccount", "Role", "RoleBinding"]
    again = Observed(pods=PODS, children={**digests(seen), ("Service", "job-worker"): ""})
    assert list(children.missing_children(JOB, again)) == []


RIGHTS: dict[str, tuple[tuple[ObservedPod, ...], list[str]]] = {
    "all pods of the roles that take part": (PODS, ["job-launcher-0", "job-worker-0", "job-worker-1"]),
    "only those that are there, and so the job's own": (PODS[:2], ["job-launcher-0", "job-worker-0"]),
    "a pod on its way out still has its name": (
        (PODS[0], pod(0, terminating=True)),
        ["job-launcher-0", "job-worker-0"],
    ),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_rights_are_over(case: str) -> None:
    pods, names = RIGHTS[case]
    rules = ensured(Observed(pods=pods))["Role"].body["rules"]
    assert isinstance(rules, list)
    assert len(rules) == 2
    assert all(rule["resourceNames"] == names for rule in rules)


def test_before_there_are_pods_there_are_no_rights_to_give() -> None:
    assert list(ensured(Observed())) == ["ServiceAccount"]


def test_rights_go_with_the_pods() -> None:
    """Whoever makes a pod of that name meanwhile is a stranger."""
    given = Observed(children=digests(Observed(pods=PODS)))
    assert ensured(given)["Role"].body["rules"] == []


KEYS: dict[str, tuple[tuple[str, ...], list[EnsureSshSecret]]] = {
    "a pod that has keys": (("watcher", "worker"), [EnsureSshSecret("job-ssh")]),
    "only pods without": (("watcher",), []),
    "none": ((), []),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_are_needed_when_there_is_to_be_made(case: str) -> None:
    roles, wanted = KEYS[case]
    made = workload(role("worker", 2), role("watcher", 1), rules=Rules(ssh_roles=("worker",)))
    creating = [CreatePod(name, 0, 1, 0) for name in roles]
    assert list(children.ssh_secret_if_needed(made, creating)) == wanted
