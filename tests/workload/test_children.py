"""Tests for the children of a job besides pods and pod groups."""

import pytest
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import (
    ConfigMapMetadata,
    PodDisruptionBudgetMetadata,
    Role,
    RoleBinding,
    SecretMetadata,
    Service,
)
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import Child, KubernetesObject
from argosy.workload import children
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.child_rules import AccountRule, LauncherAccount
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Dependency, Phase, Rules
from argosy.workload.naming import Naming
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import CreatePod, Plan
from argosy.workload.record import Record
from tests.support.scale_simulator import ScaleSimulator, elastic_job, running
from tests.support.workloads import NOW, existing, existing_child, pod, role, role_record, workload

JOB = workload(
    role("launcher", 1),
    role("worker", 2),
    role("watcher", 1),
    rules=Rules(services=("worker",), exec_from=("launcher",), exec_into=("launcher", "worker")),
)
PODS = (pod(0, role="launcher"), pod(0), pod(1), pod(0, role="watcher"))


def kinds(children: dict[type[KubernetesObject], Child]) -> list[str]:
    return [kind.resource.kind for kind in children]


def missing(observed: Observed) -> dict[type[KubernetesObject], Child]:
    changes = children.sync_children(JOB, Record(), observed)
    return {change.child.kind: change.child for change in changes if isinstance(change, Apply)}


def test_every_child_is_created_once() -> None:
    created = missing(Observed(pods=PODS))
    assert kinds(created) == ["Service", "ServiceAccount", "Role", "RoleBinding"]
    assert created[Service].name == "job-worker"
    existing = tuple(existing_child(child) for child in created.values())
    assert not missing(Observed(pods=PODS, children=existing))


def test_a_role_binding_is_written_after_its_role() -> None:
    created = missing(Observed(pods=PODS))
    assert created[RoleBinding].stage > created[Role].stage


RIGHTS: dict[str, tuple[tuple[ObservedPod, ...], list[str]]] = {
    "all pods exist: rights over the pods of both roles in the rules": (
        PODS,
        ["job-launcher-0", "job-worker-0", "job-worker-1"],
    ),
    "some pods exist: rights over these only": (PODS[:2], ["job-launcher-0", "job-worker-0"]),
    "terminating pod: rights over it remain": (
        (PODS[0], pod(0, terminating=True)),
        ["job-launcher-0", "job-worker-0"],
    ),
}


@pytest.mark.parametrize(("pods", "want"), RIGHTS.values(), ids=RIGHTS.keys())
def test_a_launcher_has_rights_over_pods(pods: tuple[ObservedPod, ...], want: list[str]) -> None:
    rules = missing(Observed(pods=pods))[Role].body["rules"]
    assert isinstance(rules, list)
    assert len(rules) == 2
    assert all(rule["resourceNames"] == want for rule in rules)


def test_no_role_is_created_before_pods_exist() -> None:
    assert kinds(missing(Observed())) == ["Service", "ServiceAccount"]


def test_rights_over_deleted_pods_are_removed() -> None:
    """A user may later create a pod with one of these names, which is not the job's."""
    created = missing(Observed(pods=PODS))
    existing = tuple(existing_child(child) for child in created.values())
    updated = missing(Observed(children=existing))
    assert kinds(updated) == ["Role"]
    assert updated[Role].body["rules"] == []


SSH_SECRETS: dict[str, tuple[tuple[str, ...], bool]] = {
    "pod that mounts the keys is created: Secret is created": (("watcher", "worker"), True),
    "only pods without keys are created: no Secret is created": (("watcher",), False),
    "no pod is created: no Secret is created": ((), False),
}


@pytest.mark.parametrize(("roles", "want"), SSH_SECRETS.values(), ids=SSH_SECRETS.keys())
def test_ssh_secret_is_created_with_the_first_pod_that_mounts_it(roles: tuple[str, ...], want: bool) -> None:
    job = workload(role("worker", 2), role("watcher", 1), rules=Rules(ssh_roles=("worker",)))
    creating = [CreatePod(name, 0, 1, 0) for name in roles]
    secret = Child(SecretMetadata, "job-ssh", {"immutable": True}, children.SSH_KEYS)
    assert list(children.ssh_secret_if_needed(job, creating)) == ([Apply(secret)] if want else [])


def test_ssh_secret_has_host_keys_if_hosts_are_verified() -> None:
    job = workload(role("worker", 2), rules=Rules(ssh_roles=("worker",), ssh_verifies_hosts=True))
    (action,) = children.ssh_secret_if_needed(job, [CreatePod("worker", 0, 1, 0)])
    assert action.child.generator == children.SSH_KEYS_AND_HOSTS


def test_every_pod_of_a_role_may_have_a_service_of_its_own() -> None:
    rules = Rules(pod_services=("worker",), service_ports={"worker": (("ssh", 22),)})
    job = workload(role("worker", 2), rules=rules)
    workers = replace(role_record(size=2), joining=IndexSet.of({4}))
    record = Record(attempt_started_at=NOW, roles={"worker": workers})
    created = [
        change for change in children.sync_children(job, record, Observed()) if isinstance(change, Apply)
    ]
    assert [change.child.name for change in created] == ["job-worker-0", "job-worker-1", "job-worker-4"]
    spec = created[1].child.body["spec"]
    assert isinstance(spec, dict)
    assert spec["clusterIP"] == "None"
    assert spec["ports"] == [{"name": "ssh", "port": 22}]
    assert spec["selector"][labels.INDEX] == "1"
    services = tuple(existing_child(change.child) for change in created)
    assert not list(children.sync_children(job, record, Observed(children=services)))
    smaller = replace(record, roles={"worker": role_record(size=1)})
    removed = list(children.sync_children(job, smaller, Observed(children=services)))
    assert [change.name for change in removed if isinstance(change, Remove)] == [
        "job-worker-1",
        "job-worker-4",
    ]
    between_attempts = replace(record, attempt_started_at=None)
    removed = list(children.sync_children(job, between_attempts, Observed(children=services)))
    assert len([change for change in removed if isinstance(change, Remove)]) == 3


def test_rights_and_labels_of_a_launcher_are_data() -> None:
    account = LauncherAccount(
        (AccountRule("pods", ("watch",)), AccountRule("configmaps", ("get",), ("hosts",))), {"app": "job"}
    )
    rules = Rules(exec_from=("launcher",), exec_into=("worker",), account=account)
    job = workload(role("worker", 1), role("launcher", 1), rules=rules)
    created = [change.child for change in children.sync_children(job, Record(), Observed(pods=(pod(0),)))]  # type: ignore[union-attr]
    assert [child.body["metadata"] for child in created] == [{"labels": {"app": "job"}}] * 3
    assert created[1].body["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"], "resourceNames": ["job-worker-0"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["hosts"]},
    ]


def test_the_account_of_a_role_that_is_held_is_created_with_its_pods() -> None:
    launcher = replace(role("launcher", 1), depends_on=(Dependency("worker", holds_creation=True),))
    rules = Rules(exec_from=("launcher",), exec_into=("worker",))
    job = workload(role("worker", 1), launcher, rules=rules)
    starting = Record(roles={"worker": role_record(Phase.STARTING, size=1)})
    assert not list(children.sync_children(job, starting, Observed(pods=(pod(0),))))
    running = Record(roles={"worker": role_record(Phase.RUNNING, size=1)})
    assert len(list(children.sync_children(job, running, Observed(pods=(pod(0),))))) == 3


def test_names_of_children_are_data() -> None:
    naming = Naming(role_hosts={"launcher": "{job}-launcher"}, account="{job}-x", ssh_keys="{job}")
    job = replace(JOB, naming=naming)
    assert job.hostname("launcher", 0) == "job-launcher"
    assert job.hostname("worker", 3) == "job-worker-3"
    assert children.service_account_name(job, "launcher") == "job-x"
    assert children.ssh_secret_name(job) == "job"


def config_maps(plan: Plan) -> list[Child]:
    applied = [action.child for action in plan.actions if isinstance(action, Apply)]
    return [child for child in applied if child.kind is ConfigMapMetadata]


def test_the_config_map_of_a_host_list_is_created_together_with_the_launcher() -> None:
    job = ScaleSimulator(elastic_job())
    job.pending = {"job-worker-1"}
    job.run(5)
    assert "job-config" not in job.children
    job.pending = set()
    while "job-config" not in job.children:
        plan = job.reconcile()
        for name, item in job.pods.items():
            job.pods[name] = replace(item, phase="Running")
    [config_map] = config_maps(plan)
    assert config_map.body == {
        "data": {
            "hostfile": "job-worker-0:1\njob-worker-1:1\n",
            "discover_hosts.sh": "#!/bin/sh\n",
            "deepspeed-hostfile": "job-worker-0 slots=1\njob-worker-1 slots=1\n",
            "kubexec.sh": "#!/bin/sh\nexit 1\n",
        }
    }
    assert [action.role for action in plan.actions if isinstance(action, CreatePod)] == ["launcher"]


def test_the_config_map_is_updated_in_the_reconcile_that_changes_the_list() -> None:
    job = running(elastic_job(3))
    assert config_maps(job.reconcile()) == []
    job.fail("job-worker-2")
    plan = job.reconcile()
    [config_map] = config_maps(plan)
    assert config_map.body["data"]["hostfile"] == "job-worker-0:1\njob-worker-1:1\n"  # type: ignore[index]
    assert job.listed() == (0, 1)


def test_a_job_whose_record_was_lost_keeps_its_config_map() -> None:
    job = running()
    job.stored, job.answer = None, lambda _call: None
    assert config_maps(job.reconcile()) == []
    assert "job-config" in job.children


def test_disruption_budget_goes_with_the_policy_that_asked_for_it() -> None:
    policy = CheckpointPolicy("file:///store", holds_evictions=True)
    job = replace(workload(), checkpoint=policy)
    [created] = children.sync_children(job, Record(), Observed())
    assert isinstance(created, Apply)
    existing = Observed(children=(existing_child(created.child),))
    assert not list(children.sync_children(job, Record(), existing))
    for changed in (None, replace(policy, holds_evictions=False)):
        [removed] = children.sync_children(replace(job, checkpoint=changed), Record(), existing)
        assert isinstance(removed, Remove)
        assert removed.name == "job-trainingrun-checkpoint"


def test_disruption_budget_of_an_earlier_name_is_replaced() -> None:
    job = replace(workload(), checkpoint=CheckpointPolicy("file:///store", holds_evictions=True))
    before = Observed(children=(existing(PodDisruptionBudgetMetadata, "job-checkpoint"),))
    created, removed = children.sync_children(job, Record(), before)
    assert isinstance(created, Apply)
    assert isinstance(removed, Remove)
    assert (created.child.name, removed.name) == ("job-trainingrun-checkpoint", "job-checkpoint")


def test_disruption_budgets_of_jobs_of_two_kinds_with_one_name_select_no_pod_of_each_other() -> None:
    policy = CheckpointPolicy("file:///store", holds_evictions=True)
    names, selectors = set(), []
    for kind, name in (("TrainingRun", "worker"), ("AresJob", "master")):
        job = replace(workload(role(name)), kind=kind, checkpoint=policy)
        [budget] = children.sync_children(job, Record(), Observed())
        assert isinstance(budget, Apply)
        names.add(budget.child.name)
        selectors.append(budget.child.body["spec"]["selector"]["matchExpressions"])  # type: ignore[index]
    assert len(names) == 2
    assert [rule["values"] for [rule] in selectors] == [["worker"], ["master"]]
