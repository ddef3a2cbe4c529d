"""Tests for converting TrainingRuns to workloads and Records to their status."""

import msgspec
import pytest
from msgspec.structs import replace

from argosy.dialects.base import StatusInput, read_record
from argosy.dialects.trainingrun.dialect import TrainingRunDialect, training_run_api
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload.checkpoint_policy import ImageTarget
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.model import Escalation, Gang, Phase, Problems, RestartPolicy, RestartScope, Workload
from argosy.workload.observed import Observed
from tests.support.workloads import NOW, later, observation, pod, pods

API = training_run_api()
DIALECT = TrainingRunDialect()
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "image"}]}}


def run(name: str = "mnist", roles: dict[str, object] | None = None, **spec: object) -> TrainingRun:
    written = roles or {"worker": {}}
    whole = {
        "framework": "custom",
        "roles": {key: {"template": TEMPLATE, **_dict(role)} for key, role in written.items()},
        **spec,
    }
    metadata = {"name": name, "namespace": "team", "uid": "u", "generation": 3}
    return msgspec.convert({"metadata": metadata, "spec": whole}, TrainingRun)


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def lowered(obj: TrainingRun) -> Workload:
    converted = DIALECT.to_workload(obj)
    assert isinstance(converted, Workload), str(converted)
    return converted


def test_all_fields_reach_the_workload() -> None:
    obj = run(
        framework="pytorch",
        options={"procsPerNode": 2},
        roles={"worker": {"replicas": 4, "elastic": {"min": 2, "max": 8, "multipleOf": 2}, "slots": 2}},
        limits={
            "restarts": 5,
            "activeDeadline": "2h",
            "ttlAfterSucceeded": "1h",
            "belowMinTimeout": "5m",
            "forceDeleteAfter": "2m",
        },
        gang={"queue": "research", "timeout": "10m"},
        suspend=True,
    )
    job = lowered(obj)
    worker = job.roles["worker"]
    assert (job.namespace, job.name, job.generation, job.suspended) == ("team", "mnist", 3, True)
    assert (worker.replicas, worker.min_running, worker.slots, worker.restart) == (
        4,
        2,
        2,
        RestartPolicy.ON_FAILURE,
    )
    assert (job.limits.restarts, job.limits.active_deadline, job.limits.below_min_timeout) == (5, 7200, 300)
    assert (job.limits.ttl.succeeded, job.limits.ttl.failed) == (3600, None)
    assert job.limits.force_delete_after == 120
    assert lowered(run()).limits.force_delete_after is None
    assert job.gang == Gang(2, "research", "", 600)
    assert job.rules.restart_scope is RestartScope.POD


def test_rules_of_the_user_take_precedence() -> None:
    obj = run(
        roles={"ps": {}, "worker": {}},
        jobPolicy={"succeeded": [["worker"]]},
        restartScope="Role",
    )
    rules = lowered(obj).rules
    assert rules.succeeded_when == (("worker",),)
    assert rules.failed_when == (("ps",), ("worker",))
    assert rules.restart_scope is RestartScope.ROLE


ELASTIC: dict[str, object] = {"worker": {"replicas": 2, "elastic": {"min": 1, "max": 4}}}

LONG = "x" * 54
PROCESS = {"level": "Process", "images": {"repository": "registry.example/team/train"}}
PROBLEMS: dict[str, tuple[TrainingRun, str]] = {
    "unknown framework": (
        run(framework="pytroch"),
        'spec.framework: unknown framework "pytroch"; did you mean "pytorch"? (known frameworks: bagua, ',
    ),
    "unknown option": (
        run(framework="pytorch", options={"procPerNode": 2}),
        "spec.options.procPerNode: unknown option: did you mean procsPerNode?",
    ),
    "option of the wrong type": (
        run(framework="pytorch", options={"procsPerNode": "two"}),
        'spec.options.procsPerNode: invalid value "two": must be an integer from 1 to 1024',
    ),
    "unknown MPI implementation": (
        run(framework="mpi", options={"implementation": "lam"}, roles={"launcher": {}, "worker": {}}),
        'spec.options.implementation: invalid value "lam": must be ompi, mpich or intel',
    ),
    "gang larger than the job": (
        run(gang={"minAvailable": 3}),
        "spec.gang.minAvailable: invalid value 3: the job has only 1 pod",
    ),
    "name too long for its pods": (
        run(LONG, roles={"worker": {"replicas": 11}}),
        "metadata.name: the name of its last pod of role worker, "
        f"'{LONG}-worker-10' has 64 characters, 1 more than the 63 allowed",
    ),
    "name too long for the pods of its maximum size": (
        run(LONG, roles={"worker": {"replicas": 2, "elastic": {"min": 1, "max": 11}}}),
        "metadata.name: the name of its last pod of role worker",
    ),
    "name with a dot": (
        run("a.b"),
        "metadata.name: the name of its last pod of role worker, 'a.b-worker-0' may",
    ),
    "name that begins with a digit": (run("7b"), "metadata.name: the name of its service, '7b-worker' may"),
    "replicas that are not a multiple of the step": (
        run(roles={"worker": {"replicas": 4, "elastic": {"min": 2, "max": 7, "multipleOf": 2}}}),
        "spec.roles.worker.elastic: max 7 is not a multiple of 2; write 6 or 8",
    ),
    "no containers": (
        run(roles={"worker": {"template": {"spec": {"containers": []}}}}),
        "spec.roles.worker.template.spec.containers: must have at least one container",
    ),
    "command is a text": (
        run(roles={"worker": {"template": {"spec": {"containers": [{"name": "a", "command": "true"}]}}}}),
        'spec.roles.worker.template.spec.containers[0].command: invalid value "true": must be a list',
    ),
    "roles that depend on each other": (
        run(roles={"a": {"dependsOn": [{"role": "b"}]}, "b": {"dependsOn": [{"role": "a"}]}}),
        "spec.roles.a.dependsOn: roles wait for each other: a → b → a",
    ),
    "policy for an unknown role": (
        run(jobPolicy={"failed": [["chief"]]}),
        "spec.jobPolicy.failed: unknown role chief (known roles: worker)",
    ),
    "too many replicas in total": (
        run(roles={"a": {"replicas": 99_999}, "b": {}}),
        "spec.roles: invalid value: 100000 pods in total; must be at most 99999",
    ),
    "limits.escalation with a framework that restarts the whole job: rejected": (
        run(framework="jax", limits={"escalation": {"pod": 1}}),
        "spec.limits.escalation: not supported with framework jax, which already restarts the whole job",
    ),
    "limits.escalation with restartScope: rejected": (
        run(restartScope="Pod", limits={"escalation": {"pod": 1}}),
        "spec.limits.escalation: not supported together with spec.restartScope; remove one of them",
    ),
    "level Process with several pods: rejected": (
        run(roles={"worker": {"replicas": 2}}, checkpoint=PROCESS),
        'spec.checkpoint.level: invalid value "Process": the job has more than one pod, or may get more: '
        "their processes cannot be saved at one moment; must be App",
    ),
    "level Process with containers that restart in their place: rejected": (
        run(limits={"escalation": {"container": 3}}, checkpoint=PROCESS),
        'spec.checkpoint.level: invalid value "Process": with limits.escalation.container, the container is',
    ),
    "store in a registry that is not named: rejected": (
        run(checkpoint={"store": "oci://team/runs"}),
        "spec.checkpoint.store: invalid image name 'oci://team/runs/team/mnist-u': must be oci://REGISTRY/",
    ),
    "store in a repository whose name is too long with that of the run: rejected": (
        run(checkpoint={"store": f"oci://registry.example/{'a' * 245}"}),
        "spec.checkpoint.store: invalid image name ",
    ),
    "bucket for elastic workers of torchrun: rejected": (
        run(framework="pytorch", roles=ELASTIC, checkpoint={"store": "s3://a"}),
        "spec.checkpoint.store: must be pvc:// or file:// with elastic workers of pytorch and bagua",
    ),
    "registry for elastic workers of Bagua: rejected": (
        run(
            framework="bagua", roles={**ELASTIC, "etcd": {}}, checkpoint={"store": "oci://registry.example/a"}
        ),
        "spec.checkpoint.store: must be pvc:// or file:// with elastic workers of pytorch and bagua",
    ),
    "images in what is no repository: rejected": (
        run(checkpoint={"level": "Process", "images": {"repository": "registry.example/a--_b"}}),
        "spec.checkpoint.images.repository: ",
    ),
    "requirement of the framework": (
        run(framework="mpi"),
        "spec.roles: framework mpi requires a role 'launcher'",
    ),
}


@pytest.mark.parametrize(("obj", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems_name_the_field(obj: TrainingRun, want: str) -> None:
    converted = DIALECT.to_workload(obj)
    assert isinstance(converted, Problems)
    assert str(converted).startswith(want)


BUCKETS = {
    "workers of torchrun that are replaced together": ("pytorch", {"worker": {"replicas": 2}}, "s3://a"),
    "elastic workers of torchrun with a claim": ("pytorch", ELASTIC, "pvc://claim"),
    "elastic workers that restart with their pods": ("deepspeed", {"launcher": {}, **ELASTIC}, "s3://a"),
    "elastic workers that do not know of each other": ("standalone", ELASTIC, "s3://a"),
}


@pytest.mark.parametrize(("framework", "roles", "store"), BUCKETS.values(), ids=BUCKETS.keys())
def test_store_in_which_every_start_finds_the_newest_checkpoint_is_accepted(
    framework: str, roles: dict[str, object], store: str
) -> None:
    assert lowered(run(framework=framework, roles=roles, checkpoint={"store": store})).checkpoint


def test_several_pods_are_accepted_with_the_level_auto() -> None:
    checkpoint = {**PROCESS, "level": "auto", "store": "s3://a"}
    workload = lowered(run(roles={"worker": {"replicas": 2}}, checkpoint=checkpoint))
    assert workload.checkpoint is not None
    assert workload.checkpoint.images == ImageTarget("registry.example", "team/train")


def test_program_is_ordered_to_save_unless_it_handles_a_signal() -> None:
    checkpoint: dict[str, object] = {"store": "s3://a"}
    ordered, told = (lowered(run(checkpoint=checkpoint | extra)) for extra in ({}, {"signal": "SIGTERM"}))
    assert ordered.checkpoint is not None
    assert told.checkpoint is not None
    assert (ordered.checkpoint.saves_on_signal, told.checkpoint.saves_on_signal) == (False, True)


def test_restart_escalation_lets_nodes_restart_containers() -> None:
    restarts = {"a": "OnFailure", "b": "ExitCode", "c": "Always"}
    roles: dict[str, object] = {name: {"restart": policy} for name, policy in restarts.items()}
    climbing = lowered(run(roles=roles, limits={"escalation": {"container": 2, "pod": 1}}))
    assert climbing.limits.escalation == Escalation(container=2, pod=1)
    assert [role.container_restart_policy for role in climbing.roles.values()] == [
        "OnFailure",
        "Never",
        "Always",
    ]
    plain = lowered(run(roles=roles))
    assert [role.container_restart_policy for role in plain.roles.values()] == ["Never", "Never", "Always"]


def test_longest_valid_name() -> None:
    lowered(run(LONG, roles={"worker": {"replicas": 10}}))


def status(obj: TrainingRun, observed: Observed, at: float = 0) -> TrainingRun:
    """Return the run with the status that one reconcile would write."""
    job = lowered(obj)
    record = decide(job, read_record(obj), observed, later(at)).record
    return stored(obj, DIALECT.to_status(obj, StatusInput(job, record, observed)))


def stored(obj: TrainingRun, new: TrainingRunStatus) -> TrainingRun:
    back = msgspec.json.decode(msgspec.json.encode(new), type=TrainingRunStatus)
    assert back == new, "a status comes back as it was written"
    return replace(obj, status=back)


def conditions(obj: TrainingRun) -> dict[str, str]:
    return {condition.type: condition.status for condition in obj.status.conditions}


def test_status_from_creation_to_success() -> None:
    obj = status(run(roles={"worker": {"replicas": 2}}), Observed())
    assert (obj.status.phase, obj.status.reason, obj.status.workers) == ("Starting", "PodsStarting", "0/2")
    assert obj.status.attempt == 0, "no pod is there yet"
    obj = status(obj, observation(*pods("RP")), 1)
    assert (obj.status.phase, obj.status.message) == ("Starting", "1 of 2 workers running")
    obj = status(obj, observation(*pods("RR")), 2)
    assert (obj.status.phase, obj.status.reason) == ("Running", "")
    assert obj.status.message == "attempt 1 · 2 workers"
    assert (obj.status.workers, obj.status.replicas, obj.status.attempt) == ("2/2", 2, 1)
    assert obj.status.selector == "argosy.dev/job=mnist,argosy.dev/role=worker"
    assert conditions(obj)["Running"] == "True"
    obj = status(obj, observation(pod(0), pod(1, "Failed", exit_code=137, node="n")), 3)
    assert (obj.status.phase, obj.status.restarts) == ("Restarting", 1)
    assert obj.status.message.startswith("worker-1 was killed (SIGKILL, exit 137) on n; replacing it")
    obj = status(obj, observation(pod(0), pod(1, replacement=1)), 4)
    assert (obj.status.phase, obj.status.message) == ("Running", "attempt 1 · 2 workers")
    obj = status(obj, observation(pod(0, "Succeeded"), pod(1, "Succeeded", replacement=1)), 134)
    assert (obj.status.phase, obj.status.reason) == ("Succeeded", "")
    assert obj.status.message == "in 2 m 14 s · 1 restart"
    assert (obj.status.completion_time, obj.status.observed_generation) == (later(134), 3)
    assert conditions(obj) == {
        "Valid": "True",
        "Running": "False",
        "Restarting": "False",
        "Suspended": "False",
        "Succeeded": "True",
        "Failed": "False",
    }
    (entry,) = obj.status.restart_history
    assert (entry.time, entry.role, entry.index, entry.cause, entry.scope) == (
        later(3),
        "worker",
        1,
        "Signal",
        "Pod",
    )
    assert (entry.attempt, entry.exit_code, entry.signal, entry.node) == (1, 137, "SIGKILL", "n")
    assert entry.message == "worker-1 was killed (SIGKILL, exit 137) on n"
    assert status(obj, Observed(), 500) == obj, "the status stays as at the end, whatever is cleaned up"


def test_message_names_a_deleted_pod_until_it_is_replaced() -> None:
    obj = status(run(roles={"worker": {"replicas": 2}}), observation(*pods("RR")), 1)
    going = pod(1, terminating=True, node="n")
    obj = status(obj, observation(pod(0), going), 2)
    assert obj.status.message == "worker-1 was deleted on n; waiting for job-worker-1 to terminate"
    obj = status(obj, observation(pod(0), recently_deleted=[going]), 3)
    assert obj.status.message == "worker-1 was deleted on n; 1 of 2 workers running"
    obj = status(obj, observation(pod(0), replace(pod(1), uid="another")), 4)
    assert obj.status.message == "attempt 1 · 2 workers"
    assert [(restart.cause, restart.node) for restart in obj.status.restart_history] == [("Deleted", "n")]


def test_running_workers_of_a_succeeded_mpi_job_count_as_succeeded() -> None:
    obj = run(framework="mpi", roles={"launcher": {}, "worker": {"replicas": 2}})
    observed = observation(pod(0, "Succeeded", role="launcher"), *pods("RR"))
    obj = status(status(obj, observation(*pods("R", "launcher"), *pods("RR"))), observed, 1)
    assert (obj.status.phase, obj.status.workers) == ("Succeeded", "2/2")
    assert obj.status.roles["worker"].active == 0


def test_condition_keeps_its_transition_time_while_its_status_is_unchanged() -> None:
    obj = status(run(), observation(pod(0)), 0)
    later_on = status(obj, observation(pod(0)), 60)
    assert later_on.status.conditions == obj.status.conditions


def test_invalid_run_has_condition_valid_false() -> None:
    obj = run(framework="pytroch")
    converted = DIALECT.to_workload(obj)
    assert isinstance(converted, Problems)
    record = plan_invalid(None, converted, 3, NOW).record
    obj = stored(obj, DIALECT.to_status(obj, StatusInput(None, record, Observed())))
    assert (obj.status.phase, obj.status.reason) == ("Pending", "InvalidSpec")
    assert obj.status.message.startswith('spec.framework: unknown framework "pytroch"')
    assert conditions(obj)["Valid"] == "False"
    assert record.phase is Phase.PENDING


def test_first_attempt_is_counted_from_its_first_pod_on() -> None:
    refused = replace(
        Observed(), failed_actions=(ActionResult("Pod", "p", ActionStatus.FORBIDDEN, "exceeded quota"),)
    )
    obj = status(run(), refused)
    assert (obj.status.attempt, obj.status.reason) == (0, "PodForbidden")
    obj = status(obj, observation(*pods("P")), 1)
    assert obj.status.attempt == 1
    assert status(obj, Observed(), 2).status.attempt == 1


def test_first_attempt_is_not_counted_if_its_pods_are_rejected() -> None:
    obj = status(run(), observation(*pods("P")))
    refused = replace(
        Observed(), failed_actions=(ActionResult("Pod", "p", ActionStatus.FORBIDDEN, "exceeded quota"),)
    )
    assert status(obj, refused, 1).status.attempt == 0
    ran = status(status(obj, observation(*pods("R")), 1), observation(*pods("R")), 2)
    assert status(ran, refused, 3).status.attempt == 1, "it has run"


def test_replacement_has_the_name_of_its_predecessor() -> None:
    job = lowered(run())
    assert API.pod_name(job, "worker", 2, 1, 0) == API.pod_name(job, "worker", 2, 5, 3) == "mnist-worker-2"
