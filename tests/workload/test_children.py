from msgspec.structs import replace

from argosy.testing.workloads import role, workload
from argosy.workload import children
from argosy.workload.model import Rules
from argosy.workload.observed import Observed
from argosy.workload.plan import EnsureChild, EnsureService

JOB = workload(
    role("launcher", 1),
    role("worker", 2),
    rules=Rules(services=("worker",), exec_from=("launcher",)),
)


def made(observed: Observed) -> list[tuple[str, str]]:
    return [
        ("Service", action.name) if isinstance(action, EnsureService) else (action.kind, action.name)
        for action in children.missing(JOB, observed)
        if isinstance(action, EnsureService | EnsureChild)
    ]


def test_everything_is_made_once() -> None:
    assert made(Observed()) == [
        ("Service", "job-worker"),
        ("ServiceAccount", "job-launcher"),
        ("Role", "job-launcher"),
        ("RoleBinding", "job-launcher"),
    ]
    digests = {
        (a.kind, a.name): a.digest for a in children.missing(JOB, Observed()) if isinstance(a, EnsureChild)
    }
    assert made(Observed(children={**digests, ("Service", "job-worker"): ""})) == []


def test_rights_reach_as_far_as_the_jobs_own_pods() -> None:
    body = next(
        a.body for a in children.missing(JOB, Observed()) if isinstance(a, EnsureChild) and a.kind == "Role"
    )
    rules = body["rules"]
    assert isinstance(rules, list)
    assert all(rule["resourceNames"] == ["job-launcher-0", "job-worker-0", "job-worker-1"] for rule in rules)


def test_a_new_size_changes_the_rights() -> None:
    digests = {
        (a.kind, a.name): a.digest for a in children.missing(JOB, Observed()) if isinstance(a, EnsureChild)
    }
    larger = replace(JOB, roles={**JOB.roles, "worker": role("worker", 3)})
    observed = Observed(children={**digests, ("Service", "job-worker"): ""})
    assert [a.kind for a in children.missing(larger, observed) if isinstance(a, EnsureChild)] == ["Role"]
