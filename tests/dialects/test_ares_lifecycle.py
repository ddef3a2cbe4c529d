"""Acceptance cases 39 to 50 of the specification, without a server: gang, limits, cleanup and suspend."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Service
from argosy.kinds.labels import LAST_APPLIED
from argosy.kinds.meta import Condition
from argosy.kinds.pod_groups import PodGroupStatus
from argosy.plan.diff import remove
from argosy.workload.capacity import Capacity, FreeNode
from argosy.workload.gang_schedulers.volcano import GROUP
from argosy.workload.observed import MetadataSubset, Observed, ObservedGroup, ObservedPod
from argosy.workload.plan import ConfirmPod, CreatePod, DeleteJob
from tests.support.aresjobs import API, CaseTable, SimulatedJob, job, messages, simulate, workload_of
from tests.support.workloads import existing, later, pod, pods

CASES = CaseTable()

GANG = {"schedulingPolicy": {"minAvailable": 2, "queue": "q", "minResources": {"cpu": "2"}}}


def gang(**run: object) -> AresJob:
    return job(roles={"worker": {"replicas": 2}}, runPolicy={**GANG, **run})


def group(phase: str, **conditions: str) -> ObservedGroup:
    """Return a Volcano PodGroup in this phase; the values of true conditions are their reasons."""
    true = [Condition(kind, "True", reason) for kind, reason in conditions.items()]
    return GROUP.parse_status(PodGroupStatus(phase, true))


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_39_no_pod_is_created_while_the_pod_group_waits(phase: str) -> None:
    """minAvailable 2: PodGroup made first, zero pods and phase Pending while its phase is empty or
    Pending."""
    begun = simulate(gang()).reconcile().reconcile()
    (pod_group,) = begun.applied(GROUP.kind)
    spec = {"minMember": 2, "queue": "q", "priorityClassName": "", "minResources": {"cpu": "2"}}
    assert (pod_group.name, pod_group.body["spec"]) == ("job", spec)
    waiting = begun.reconcile_observed(Observed(group=group(phase)))
    assert (waiting.created, waiting.phase, waiting.status.start_time) == ([], "Pending", None)


def test_39_all_pods_are_created_once_the_pod_group_is_admitted() -> None:
    """Inqueue -> pods with schedulerName volcano and the group annotation."""
    waiting = simulate(gang()).reconcile().reconcile_observed(Observed(group=group("Pending")))
    admitted = waiting.reconcile_observed(Observed(group=group("Inqueue")))
    assert admitted.created == ["worker-0", "worker-1"]
    assert (admitted.phase, admitted.status.start_time) == ("Starting", later(admitted.at))
    placed = admitted.reconcile_observed(
        Observed(pods=pods("PP"), group=group("Running", Scheduled="tasks ready"))
    )
    assert placed.condition("Scheduled") == ("True", "Scheduled", "tasks ready")
    back = placed.reconcile_observed(Observed(pods=pods("PP"), group=group("Pending")))
    assert back.phase == "Starting", "the gate opens for good"


def test_40_evicted_pod_group_is_preempted() -> None:
    """PodGroup Evicted=True -> Failed, reason Preempted."""
    running = (
        simulate(gang())
        .reconcile()
        .reconcile_observed(Observed(group=group("Inqueue")))
        .reconcile(*pods("RR"))
    )
    evicted = running.reconcile_observed(
        Observed(pods=pods("RR"), group=group("Running", Evicted="reclaimed"))
    )
    assert (evicted.phase, evicted.condition("Failed")[1]) == ("Failed", "Preempted")


def preempted(index: int = 0, phase: str = "Running") -> ObservedPod:
    return replace(pod(index, phase, exit_code=143 if phase == "Failed" else None), preempted_at=later(0))


def test_40_preempted_pod_holds_the_job() -> None:
    """Pod Ready=False/Preempted, PodGroup not evicted -> no phase change, no pod created."""
    running_group = group("Running", Scheduled="tasks ready")
    running = (
        simulate(gang())
        .reconcile()
        .reconcile_observed(Observed(group=group("Inqueue")))
        .reconcile_observed(Observed(pods=pods("RR"), group=running_group))
    )
    assert running.phase == "Running"
    failed = running.reconcile_observed(Observed(pods=(preempted(0, "Failed"), pod(1)), group=running_group))
    assert (failed.phase, failed.role().phase, failed.created) == ("Running", "Running", [])
    assert failed.plan and failed.plan.requeue_at == later(60)
    gone = failed.reconcile_observed(Observed(pods=(pod(1),), group=running_group), seconds=60)
    confirmed = gone.reconcile_observed(
        Observed(pods=(pod(1),), group=running_group, confirmed_absent=frozenset({("worker", 0)}))
    )
    assert (confirmed.phase, confirmed.condition("Failed")[1]) == ("Failed", "Preempted")
    assert confirmed.role().reason == "Preempted"


def test_40_after_a_minute_the_usual_rules_apply() -> None:
    running_group = group("Running", Scheduled="tasks ready")
    running = (
        simulate(gang())
        .reconcile()
        .reconcile_observed(Observed(group=group("Inqueue")))
        .reconcile_observed(Observed(pods=pods("RR"), group=running_group))
    )
    over = running.reconcile_observed(
        Observed(pods=(preempted(0, "Failed"), pod(1)), group=running_group), seconds=61
    )
    assert (over.phase, over.condition("Failed")[1]) == ("Failed", "Preempted")
    assert over.role().reason == "Preempted"


def capacity_of(cpu: int) -> Capacity:
    return Capacity((FreeNode("node-1", {"cpu": cpu * 1000, "pods": 110}),))


def test_53_builtin_gang_scheduler_waits_for_capacity() -> None:
    """Backend builtin, minAvailable 3. Capacity for 2 pods: no pods, job Pending.

    Capacity for 3: all pods at once, Scheduled True.
    """
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    obj = job(roles={"worker": {"replicas": 3, "template": template}}, runPolicy=policy)
    own = Observed(gang_scheduler_setting="builtin", available_gang_schedulers=frozenset({"builtin"}))
    waiting = simulate(obj).reconcile().reconcile_observed(replace(own, capacity=capacity_of(2)))
    assert (waiting.phase, waiting.created, waiting.condition("Scheduled")) == ("Pending", [], ("", "", ""))
    admitted = waiting.reconcile_observed(replace(own, capacity=capacity_of(3)))
    assert admitted.created == ["worker-0", "worker-1", "worker-2"]
    assert (admitted.phase, admitted.condition("Scheduled")[:2]) == ("Starting", ("True", "Scheduled"))
    assert not admitted.applied(GROUP.kind), "there is no group"


def test_pod_group_has_the_annotations_of_the_job() -> None:
    """annotations = all job annotations except last-applied; what the job has no longer goes."""
    obj = gang()
    noted = replace(obj, metadata=replace(obj.metadata, annotations={"a": "1", LAST_APPLIED: "{}"}))
    (pod_group,) = simulate(noted).reconcile().reconcile().applied(GROUP.kind)
    metadata = pod_group.body["metadata"]
    assert isinstance(metadata, dict)
    annotations = metadata["annotations"]
    assert annotations["a"] == "1" and LAST_APPLIED not in annotations


def test_45_without_pod_groups_a_gang_waits_with_a_reason() -> None:
    """a gang job is Pending with GangSchedulerMissing; CRD installed -> PodGroup appears."""
    waiting = simulate(gang()).reconcile().reconcile_observed(Observed(available_gang_schedulers=frozenset()))
    assert (waiting.phase, waiting.created) == ("Pending", [])
    status, reason, message = waiting.condition("Scheduled")
    assert (status, reason) == ("False", "GangSchedulerMissing")
    assert "install Volcano" in message and "operator.gang.backend" in message
    served = waiting.reconcile_observed(Observed())
    assert served.applied(GROUP.kind)


def failing(**run: object) -> SimulatedJob:
    roles = {"worker": {"restartPolicy": "OnFailure"}}
    return simulate(job(roles=roles, runPolicy=run)).start().reconcile(*pods("R"))


@CASES("43. backoffLimit 3, OnFailure: the fourth failure -> phase Failed, JobFailed")
def backoff_limit() -> None:
    running = failing(backoffLimit=3)
    for times in range(3):
        running = running.reconcile(pod(0, "Failed", replacement=times), seconds=700)
        assert (running.phase, running.role().restarts) == ("Running", times + 1)
        running = running.reconcile(pod(0, replacement=times + 1), seconds=700)
    ended = running.reconcile(pod(0, "Failed", replacement=3))
    status, reason, message = ended.condition("Failed")
    assert (ended.phase, status, reason) == ("Failed", "True", "JobFailed")
    assert "3 of 3 restarts used, 1 more needed (spec.runPolicy.backoffLimit)" in message
    assert ended.role().restarts == 3


@CASES("backoffLimit 0: on the first failure, also of a pod that is kept")
def a_limit_of_zero() -> None:
    roles = {"worker": {"replicas": 2, "rolePhasePolicy": {"failed": "AllPods"}}}
    running = simulate(job(roles=roles, runPolicy={"backoffLimit": 0})).start().reconcile(*pods("RR"))
    ended = running.reconcile(*pods("FR"))
    assert (ended.phase, ended.condition("Failed")[1]) == ("Failed", "JobFailed")
    assert "spec.runPolicy.backoffLimit" in ended.condition("Failed")[2]
    assert ended.deleted == ["job-worker-1"], "what still runs is deleted whatever cleanPodPolicy says"


@CASES("43. activeDeadlineSeconds 60 -> Failed at 60 s after startTime, live pods deleted")
def active_deadline() -> None:
    running = failing(activeDeadlineSeconds=60)
    start = running.status.start_time
    assert start is not None
    assert running.plan is not None
    assert running.plan.requeue_at == start.replace(minute=start.minute + 1)
    ended = running.reconcile(*pods("R"), seconds=60)
    assert (ended.phase, ended.condition("Failed")[1], ended.deleted) == (
        "Failed",
        "JobFailed",
        ["job-worker-0"],
    )
    assert "spec.runPolicy.activeDeadlineSeconds" in ended.condition("Failed")[2]


@CASES("43. ttlSecondsAfterFinished 30 -> job object gone about 30 s after the finish")
def time_to_live_of_the_job() -> None:
    done = failing(ttlSecondsAfterFinished=30).reconcile(*pods("S"))
    assert done.plan is not None
    assert (done.phase, done.plan.requeue_at) == ("Succeeded", later(done.at + 30))
    over = done.reconcile(*pods("S"), seconds=30)
    assert any(isinstance(action, DeleteJob) for action in over.actions)


@CASES("43. ttlSecondsAfterFinished, InvalidDefinition included")
def time_to_live_of_a_job_that_is_invalid() -> None:
    refused = simulate(job(roles={"worker": None}, runPolicy={"ttlSecondsAfterFinished": 30})).reconcile()
    assert refused.plan is not None
    assert refused.plan.requeue_at == later(refused.at + 30)
    over = refused.reconcile(seconds=30)
    assert any(isinstance(action, DeleteJob) for action in over.actions)


CHILDREN = {
    "42. ttlSecondsAfterFailed 10 -> about 10 s after failure pods, services, PodGroup gone, job kept": (
        10,
        True,
    ),
    "42. … nil -> all kept": (None, False),
}


@pytest.mark.parametrize(("ttl", "gone"), CHILDREN.values(), ids=CHILDREN.keys())
def test_ttl_of_the_children_of_a_failed_job(ttl: int | None, gone: bool) -> None:
    failed = simulate(job(ttlSecondsAfterFailed=ttl)).start().reconcile(*pods("F"))
    children = (existing(Service, "job-worker"), existing(GROUP.kind, "job"))
    observed = Observed(pods=pods("F"), children=children, group=group("Running"))
    assert (failed.phase, failed.deleted) == ("Failed", [])
    after = failed.reconcile_observed(observed, seconds=10)
    assert (after.deleted == ["job-worker-0"]) is gone
    for child in children:
        assert (remove(child) in after.actions) is gone
    assert not any(isinstance(action, DeleteJob) for action in after.actions)
    assert after.role().failed == 1, "the status stays as at the finish"


CLEANUPS = {
    "None: all kept": ("None", []),
    "Running: Running and Pending pods deleted": ("Running", ["job-a-0"]),
    "All: all pods, role services and the PodGroup deleted": ("All", ["job-a-0", "job-b-0"]),
    "empty: as All": ("", ["job-a-0", "job-b-0"]),
}


@pytest.mark.parametrize(("policy", "want"), CLEANUPS.values(), ids=CLEANUPS.keys())
def test_cleanup(policy: str, want: list[str]) -> None:
    obj = job(roles={"a": {}, "b": {}}, runPolicy={"cleanPodPolicy": policy})
    ended = simulate(obj).start().reconcile(*pods("R", "a"), *pods("F", "b"))
    assert (ended.phase, ended.deleted) == ("Failed", want)


@CASES(
    "46. suspend true on a running job -> no pods, phase Pending; false -> runs again; the deadline "
    "counts from then"
)
def suspend() -> None:
    running = failing(activeDeadlineSeconds=60)
    held = running.with_spec(runPolicy={"suspend": True}).reconcile(*pods("R"), seconds=40)
    assert (held.phase, held.deleted, held.status.start_time) == ("Pending", ["job-worker-0"], None)
    assert held.condition("Suspended")[0] == "True"
    assert held.role().phase == "Pending"
    back = held.with_spec(runPolicy={"suspend": False}).reconcile(seconds=40)
    assert (back.phase, back.created) == ("Starting", ["worker-0"])
    assert (back.status.start_time, back.condition("Suspended")[0]) == (later(back.at), "False")
    again = back.reconcile(pod(0, attempt=2), seconds=50)
    assert again.phase == "Running"


@CASES(
    "50. Job fails while a launcher waits, cleanPodPolicy None -> the waiting pod is deleted, other pods kept"
)
def a_pod_that_waits_when_the_job_fails_is_deleted() -> None:
    waiting = pod(0, "Pending", role="launcher", waits_for_dependency=True)
    begun = simulate(job("mpi", roles={"launcher": {}, "worker": {"replicas": 2}})).start()
    failed = begun.reconcile(waiting, *pods("FR"))
    assert (failed.phase, failed.deleted) == ("Failed", ["job-launcher-0"])


PRIORITY, QUEUE = "ares.io/job-priority", "ares.io/ares-queue"


def annotated(simulated: SimulatedJob, **annotations: str) -> SimulatedJob:
    """Return the job with these annotations and no others."""
    written = {f"ares.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return replace(
        simulated, obj=replace(simulated.obj, metadata=replace(simulated.obj.metadata, annotations=written))
    )


def marked(**marks: str) -> ObservedPod:
    keys = {f"ares.io/{name.replace('_', '-')}": value for name, value in marks.items()}
    return replace(pod(0), metadata=MetadataSubset(keys, keys))


@CASES(
    "41. Change, add and remove ares.io/job-priority on the job -> pods and PodGroup follow; "
    "unrelated keys untouched"
)
def metadata_is_handed_on() -> None:
    running = annotated(simulate(job()), job_priority="5").start().reconcile(marked(job_priority="5"))
    assert (running.metadata_patches, running.obj.metadata.labels) == ([], {PRIORITY: "5"})
    changed = annotated(running, job_priority="7", ares_queue="q").reconcile(marked(job_priority="5"))
    wanted = {PRIORITY: "7", QUEUE: "q"}
    assert [(patch.labels, patch.annotations) for patch in changed.metadata_patches] == [(wanted, wanted)]
    assert changed.obj.metadata.labels == wanted
    observed = Observed(
        pods=(marked(job_priority="7"),), group=ObservedGroup(metadata=MetadataSubset(wanted, wanted))
    )
    removed = annotated(changed, job_priority="7").reconcile_observed(observed)
    assert [(patch.kind, patch.labels, patch.annotations) for patch in removed.metadata_patches] == [
        (GROUP.kind, {QUEUE: None}, {QUEUE: None})
    ]
    assert removed.obj.metadata.labels == {PRIORITY: "7"}


@CASES("a value that is no legal label value becomes annotation only (Warning InvalidLabelValue)")
def a_value_that_can_be_no_label() -> None:
    running = annotated(simulate(job()), job_priority="5").start().reconcile(marked(job_priority="5"))
    unfit = annotated(running, job_priority="very high!").reconcile(marked(job_priority="5"))
    assert [(patch.labels, patch.annotations) for patch in unfit.metadata_patches] == [
        ({PRIORITY: None}, {PRIORITY: "very high!"})
    ]
    assert unfit.obj.metadata.labels == {}
    assert [text.partition(":")[0] for text in messages(unfit.events, "InvalidLabelValue")] == [PRIORITY]
    assert not unfit.reconcile(marked(job_priority="5")).events


def test_label_of_the_user_is_not_overwritten() -> None:
    meta = replace(job().metadata, labels={PRIORITY: "5", "team": "a"})
    running = simulate(replace(job(), metadata=meta)).start().reconcile(*pods("R"))
    assert running.obj.metadata.labels == {PRIORITY: "5", "team": "a"}


@CASES("demo: makes no pods or services; goes Pending -> Starting and stays")
def a_stub() -> None:
    first = simulate(job("demo", roles={"a": {}, "b": {"replicas": 2}})).reconcile()
    assert (first.phase, first.actions) == ("Pending", ())
    begun = first.reconcile()
    assert (begun.phase, begun.role("a").phase, begun.actions) == ("Starting", "Starting", ())
    assert begun.status.start_time == later(begun.at)
    assert begun.reconcile(seconds=3600).status == begun.status
    stopped = begun.with_spec(runPolicy={"activeDeadlineSeconds": 60}).reconcile(seconds=60)
    assert (stopped.phase, stopped.condition("Failed")[1]) == ("Failed", "JobFailed"), "limits act on it too"


GONE = {
    "Never, role Starting: created again": ("Never", "P", ["worker-0"], "Starting"),
    "Never, role Running: role Failed": ("Never", "R", [], "Failed"),
    "OnFailure: created again": ("OnFailure", "R", ["worker-0"], "Running"),
}


@pytest.mark.parametrize(("restart", "other", "want", "phase"), GONE.values(), ids=GONE.keys())
def test_deleted_succeeded_pod_is_missing(restart: str, other: str, want: list[str], phase: str) -> None:
    """3.2 counts existing pods."""
    begun = simulate(job(roles={"worker": {"replicas": 2, "restartPolicy": restart}})).start()
    running = begun.reconcile(*pods(f"{other}{other}"))
    done = running.reconcile(*pods(f"S{other}"))
    assert (done.role().succeeded, done.created) == (1, [])
    absent = Observed(pods=pods(f".{other}"), confirmed_absent=frozenset({("worker", 0)}))
    lost = done.reconcile_observed(absent)
    assert (lost.created, lost.role().phase) == (want, phase)
    assert lost.role().reason == ("PodMissing" if phase == "Failed" else "")


def test_succeeded_pod_on_a_node_that_is_down_counts_as_failed() -> None:
    """3.2: the node is checked before the phase."""
    obj = job(roles={"worker": {"replicas": 2, "rolePhasePolicy": {"nodeDownAsFailed": True}}})
    observed_pods = (pod(0, "Succeeded", node="a"), pod(1, node="b"))
    running = simulate(obj).start().reconcile(pod(0, node="a"), pod(1, node="b"))
    down = running.reconcile_observed(Observed(pods=observed_pods, nodes_partly_unknown=frozenset({"a"})))
    assert (down.role().phase, down.role().reason, down.role().failed) == ("Failed", "PossibleNodeDown", 1)


def test_failed_role_that_does_not_end_the_job_is_left_alone() -> None:
    """Never: missing pods are created again only while the role is Pending or Starting."""
    policy = {"failed": [["train"]], "succeeded": [["train"]]}
    obj = job(roles={"etcd": {}, "train": {}}, jobPhasePolicy=policy)
    running = simulate(obj).start().reconcile(*pods("R", "etcd"), *pods("R", "train"))
    failed = running.reconcile(*pods("F", "etcd"), *pods("R", "train"))
    assert (failed.phase, failed.role("etcd").phase) == ("Running", "Failed")
    gone = failed.reconcile_observed(
        Observed(pods=pods("R", "train"), confirmed_absent=frozenset({("etcd", 0)}))
    )
    again = gone.reconcile(*pods("R", "train"))
    assert not any(isinstance(action, ConfirmPod | CreatePod) for action in again.actions)
    assert (gone.created, again.role("etcd").phase) == ([], "Failed")


def test_pod_of_a_restarted_role_is_replaced_before_the_old_one_is_deleted() -> None:
    """OnFailure, missing: recreated at once, terminating ones ignored; under another name."""
    running = failing()
    going = running.reconcile(pod(0, terminating=True))
    assert going.created == ["worker-0"]
    assert going.role().restarts == 0, "somebody's deletion is no failure"
    workload = workload_of(running.obj)
    names = {API.pod_name(workload, "worker", 0, 1, number) for number in (0, 1)}
    assert len(names) == 2
    assert all(name.startswith("job-worker-0-") for name in names)


def test_restart_scope_job_restarts_all_pods() -> None:
    roles = {"a": {"restartPolicy": "OnFailure"}, "b": {"restartPolicy": "OnFailure"}}
    obj = job(roles=roles, runPolicy={"restartScope": "Job"})
    assert {role.container_restart_policy for role in workload_of(obj).roles.values()} == {"Never"}, (
        "each failure is to be seen"
    )
    running = simulate(obj).start().reconcile(*pods("R", "a"), *pods("R", "b"))
    hurt = running.reconcile(*pods("F", "a"), *pods("R", "b"))
    assert sorted(hurt.deleted) == ["job-a-0", "job-b-0"]
    assert (hurt.phase, hurt.condition("Restarting")[0], hurt.role("b").phase) == (
        "Running",
        "True",
        "Pending",
    )
    again = hurt.reconcile()
    assert again.created == ["a-0", "b-0"]
    up = again.reconcile(pod(0, role="a", attempt=2), pod(0, role="b", attempt=2))
    assert (up.phase, up.condition("Restarting")[0]) == ("Running", "False")


FULL = replace(
    pod(0, "Failed", exit_code=137, reason="Evicted", node="n1"),
    over_limit=True,
    message='Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
)
EVICTIONS: dict[str, tuple[ObservedPod, int]] = {
    "evicted for its own storage: counted": (FULL, 1),
    "evicted by a node under pressure: counted": (
        pod(0, "Failed", disrupted=True, reason="Evicted", node="n1"),
        1,
    ),
    "evicted by a drain: counted": (
        pod(0, terminating=True, disruption_reason="EvictionByEvictionAPI", node="n1"),
        1,
    ),
    "evicted by a taint: counted": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager", node="n1"),
        1,
    ),
    "preempted by the scheduler: counted": (
        pod(0, "Failed", disrupted=True, reason="Preempting", node="n1"),
        1,
    ),
    "deleted by a user: not counted": (pod(0, terminating=True, node="n1"), 0),
}


@pytest.mark.parametrize(("lost", "want"), EVICTIONS.values(), ids=EVICTIONS.keys())
def test_replacement_after_an_eviction_counts_as_a_restart(lost: ObservedPod, want: int) -> None:
    """3.4: each replacement adds 1; replacements caused by the cluster do not count towards backoffLimit."""
    after = failing(backoffLimit=3).reconcile(lost)
    assert after.role().restarts == want
    assert after.status.argosy.get("restarts", 0) == (1 if lost is FULL else 0)


def test_pod_that_repeatedly_exceeds_its_volume_fails_the_job() -> None:
    running = failing(backoffLimit=2)
    for times in range(3):
        assert running.phase == "Running"
        evicted = replace(FULL, replacement=times, uid=f"uid-{times}")
        running = running.reconcile(evicted).reconcile(pod(0, replacement=times + 1), seconds=600)
    assert (running.phase, running.condition("Failed")[1]) == ("Failed", "JobFailed")
    assert "worker-0 was evicted from n1: Usage of EmptyDir volume" in running.status.message


def test_evictions_by_the_cluster_do_not_count_against_the_limit() -> None:
    running = failing(backoffLimit=2)
    for times in range(5):
        evicted = replace(pod(0, "Failed", disrupted=True, reason="Evicted"), replacement=times)
        running = running.reconcile(evicted).reconcile(pod(0, replacement=times + 1), seconds=600)
    assert (running.phase, running.role().restarts) == ("Running", 5)


def test_restart_history_has_the_form_of_a_training_run() -> None:
    wanted = job(
        roles={"worker": {"replicas": 2, "restartPolicy": "OnFailure"}}, runPolicy={"backoffLimit": 1}
    )
    running = simulate(wanted).start().reconcile(*pods("RR"))
    assert running.status.message == "attempt 1 · 2 workers"
    evicted = replace(pod(1, "Failed", disrupted=True, reason="Evicted", node="n1"), message="low on memory")
    hurt = running.reconcile(pod(0), evicted)
    assert hurt.status.message == "worker-1 was evicted from n1: low on memory; replacing it"
    back = pod(1, replacement=1, container_restarts=2, last_exit_code=137)
    ended = hurt.reconcile(pod(0), back)
    assert ended.status.message == (
        "a container of worker-1 was killed (SIGKILL, exit 137);"
        " restart limit exceeded: 2 needed, 1 allowed (spec.runPolicy.backoffLimit)"
    )
    history = [
        (restart.cause, restart.scope, restart.exit_code, restart.node)
        for restart in ended.status.restart_history
    ]
    assert history == [("Evicted", "Pod", None, "n1"), ("Signal", "Container", 137, "")]


@pytest.mark.parametrize("play", CASES.table.values(), ids=CASES.table.keys())
def test_case(play: Callable[[], None]) -> None:
    play()
