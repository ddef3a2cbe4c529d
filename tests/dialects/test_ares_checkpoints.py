"""Checkpoints of AresJobs, without a server: what the policy changes, and what the status shows."""

from typing import cast

import pytest
from msgspec.structs import replace

from argosy.dialects.ares.api import pod_name
from argosy.kinds.aresjob import AresJob
from argosy.kinds.checkpoint_status import RecoveryStatus
from argosy.kinds.kubernetes import PodDisruptionBudgetMetadata
from argosy.kinds.migration import CheckpointBackup
from argosy.plan.children import KubernetesObject
from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.index_set import IndexSet
from argosy.workload.notice import Notice
from argosy.workload.observed import Observed, ObservedPod
from tests.support.aresjobs import API, SimulatedJob, job, messages, problems, simulate, workload_of
from tests.support.workloads import later, pod

Json = dict[str, object]
STORE: Json = {"store": "pvc://claim/runs"}
IMAGES: Json = {"level": "Process", "images": {"repository": "registry.example/team/train"}}


def kept(checkpoint: Json = STORE, **worker: object) -> AresJob:
    return job(roles={"worker": worker}, checkpoint=checkpoint)


def saved(step: int, seconds: float, epoch: int = 0) -> SavedCheckpoint:
    return SavedCheckpoint(step, f"sha256:{step:064x}", later(seconds), epoch=epoch)


def worker(acknowledged: SavedCheckpoint | None = None, **fields: object) -> ObservedPod:
    return replace(pod(0, node="n0"), saved=acknowledged, **fields)


def running(obj: AresJob) -> SimulatedJob:
    """Return the job once its worker runs and has saved step 3."""
    return simulate(obj).start().reconcile(worker()).reconcile(worker(saved(3, 3)))


def test_failed_pods_are_replaced_by_the_operator_under_one_name() -> None:
    """Only a new pod looks for the newest checkpoint, and two pods of a replica would write to one folder."""
    with_checkpoint, plain = workload_of(kept()), workload_of(job())
    role = with_checkpoint.roles["worker"]
    assert (role.restart, role.container_restart_policy) == ("OnFailure", "Never")
    assert plain.roles["worker"].restart == "Never"
    in_place = workload_of(job(roles={"worker": {"restartPolicy": "OnFailure"}}))
    assert in_place.roles["worker"].container_restart_policy == "OnFailure"
    assert pod_name(with_checkpoint, "worker", 0, 2, 3) == "job-worker-0"
    assert pod_name(in_place, "worker", 0, 2, 3) != "job-worker-0"


def test_each_job_has_a_folder_of_its_own() -> None:
    policy = workload_of(kept({**STORE, "interval": "10m", "onDrain": "Save"})).checkpoint
    assert policy is not None
    assert policy.uri == "pvc://claim/runs/ns/job-job-uid"
    assert (policy.interval, policy.holds_evictions) == (600, True)


ELASTIC: Json = {"worker": {"replicas": 2, "elastic": {"min": 1, "max": 4}}}


def bagua(checkpoint: Json) -> AresJob:
    return job(
        "bagua",
        roles={**ELASTIC, "etcd": {}},
        framework={"bagua": {"enableElastic": True}},
        availablePorts=list(range(7000, 7012)),
        checkpoint=checkpoint,
    )


STORES: dict[str, tuple[AresJob, bool]] = {
    "torchrun": (job("pytorch", roles=ELASTIC, checkpoint={"store": "s3://a"}), False),
    "torchrun with a claim": (job("pytorch", roles=ELASTIC, checkpoint=STORE), True),
    "Bagua": (bagua({"store": "s3://a"}), False),
    "Bagua with a claim": (bagua(STORE), True),
    "standalone programs": (job("standalone", roles=ELASTIC, checkpoint={"store": "s3://a"}), True),
}


@pytest.mark.parametrize(("obj", "valid"), STORES.values(), ids=STORES.keys())
def test_elastic_workers_that_restart_in_their_pods_need_one_folder_for_all(
    obj: AresJob, valid: bool
) -> None:
    message = "spec.checkpoint.store: must be pvc:// or file:// with elastic workers of pytorch and bagua"
    assert problems(obj).startswith(message) is not valid
    assert valid is not bool(problems(obj))


def test_status_and_conditions_show_the_last_checkpoint() -> None:
    before = simulate(kept()).start().reconcile(worker())
    assert before.condition("CheckpointReady") == ("False", "NoCheckpointYet", "")
    after = before.reconcile(worker(saved(3, 3)))
    assert after.status.checkpoint is not None
    assert after.status.checkpoint.last_step == 3
    assert after.status.checkpoint.uri == "pvc://claim/runs/ns/job-job-uid"
    assert after.condition("CheckpointReady") == ("True", "CheckpointCompleted", "step 3 saved")
    assert after.condition("ProgressLost")[:2] == ("False", "NoLoss")
    assert messages(after.events, "CheckpointCompleted") == ["step 3 saved"]
    assert running(job()).status.checkpoint is None


def last_recovery(simulated: SimulatedJob) -> RecoveryStatus:
    return simulated.status.recoveries[-1]


def test_announced_end_of_a_node_is_answered_by_a_checkpoint_and_a_new_pod() -> None:
    replicas = {"worker": IndexSet.first(1)}
    notice = Notice("node/u", NoticeCause.PREEMPTED, "spot", "n0", deadline=later(90), replicas=replicas)

    def observe(found: ObservedPod) -> Observed:
        return Observed(pods=(found,), notices=(notice,))

    ordered = running(kept()).reconcile_observed(observe(worker(saved(3, 3))))
    assert ordered.deleted == [], "not before the checkpoint is saved"
    order = cast("Json", ordered.status.argosy["order"])
    assert (order["reason"], order["stop"]) == ("Preempted", {"worker": "0"})
    (shown,) = ordered.status.notices
    assert shown.response == "SaveAndMove"
    moved = ordered.reconcile_observed(observe(worker(saved(8, 5, cast("int", order["epoch"])))))
    assert moved.deleted == ["job-worker-0"]
    new = worker(replacement=1, node="n1", uid="new", resumed_step=8, created=later(moved.at))
    done = moved.reconcile(new)
    assert (last_recovery(done).action, last_recovery(done).restored_from) == ("SaveAndMove", 8)
    assert last_recovery(done).outcome == "Recovered"


def test_job_is_suspended_once_it_has_saved() -> None:
    asked = running(kept()).with_spec(runPolicy={"suspend": True}).reconcile(worker(saved(3, 3)))
    assert (asked.deleted, asked.phase) == ([], "Running")
    assert asked.status.message == "saving a checkpoint (Suspended)"
    epoch = cast("int", cast("Json", asked.status.argosy["order"])["epoch"])
    suspended = asked.reconcile(worker(saved(9, 6, epoch)))
    assert suspended.deleted == ["job-worker-0"]
    assert suspended.condition("Suspended")[0] == "True"
    assert last_recovery(suspended).source == "spec.runPolicy.suspend"
    assert suspended.status.message == "suspended by spec.runPolicy.suspend"


def test_drains_are_held_back_by_a_disruption_budget() -> None:
    held = running(kept({**STORE, "onDrain": "Save"})).reconcile(worker(saved(3, 3)))
    (budget,) = held.applied(PodDisruptionBudgetMetadata)
    assert budget.name == "job-aresjob-checkpoint"
    assert cast("Json", budget.body["spec"])["minAvailable"] == 1
    assert running(kept()).reconcile(worker()).applied(PodDisruptionBudgetMetadata) == []


NEEDED: dict[str, tuple[object, bool]] = {
    "no checkpoint": (None, False),
    "the program saves": (STORE, False),
    "processes are saved": (IMAGES, True),
    "of a form that our CRD rejects": ("yes", False),
}


@pytest.mark.parametrize(("checkpoint", "want"), NEEDED.values(), ids=NEEDED.keys())
def test_backups_are_watched_once_a_job_needs_them(checkpoint: object, want: bool) -> None:
    obj = job() if checkpoint is None else job(checkpoint=checkpoint)
    kind: type[KubernetesObject] = CheckpointBackup
    assert API.on_demand_children[kind](obj) is want
    assert API.child_kinds == (PodDisruptionBudgetMetadata,)


INVALID: dict[str, tuple[AresJob, str]] = {
    "no store": (kept({}), "spec.checkpoint.store: required with the levels App and auto"),
    "unknown kind of store": (kept({"store": "ftp://a"}), "spec.checkpoint.store: expected `str`"),
    "images that are no repository": (
        kept({**IMAGES, "images": {"repository": "registry.example/a--_b"}}),
        "spec.checkpoint.images.repository: ",
    ),
    "processes of several pods": (
        kept(IMAGES, replicas=2),
        'spec.checkpoint.level: invalid value "Process": the job has more than one pod',
    ),
    "processes of a container that is restarted in its place": (
        kept(IMAGES, restartPolicy="Always"),
        'spec.checkpoint.level: invalid value "Process": with restart Always',
    ),
}


@pytest.mark.parametrize(("obj", "want"), INVALID.values(), ids=INVALID.keys())
def test_problem_names_the_field(obj: AresJob, want: str) -> None:
    assert want in problems(obj)
