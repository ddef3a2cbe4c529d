"""Tests that the processes of a run's only pod are saved once for each order, and restored from."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds.checkpoint_spec import CheckpointLevel
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import BuiltImage, CheckpointBackup, CheckpointBackupStatus
from argosy.plan.actions import Apply, Remove
from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy, ImageTarget
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import Escalation, Limits, Phase, RestartPolicy, Role, Rules, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.plan import CreatePod, DeletePod, Plan
from argosy.workload.process_saves import obstacle, restored_checkpoint
from argosy.workload.record import Record, RestartEntry
from tests.support import checkpointed_jobs
from tests.support.checkpointed_jobs import EPOCH, Life
from tests.support.workloads import NOW, later, pod, role, role_record, workload

IMAGES = ImageTarget("registry.example", "team/train", "login")
PROCESS = CheckpointPolicy("", level=CheckpointLevel.PROCESS, images=IMAGES, suspend_grace=60.0)
AUTO = replace(PROCESS, uri="file:///store/ns/job", level=CheckpointLevel.AUTO)
SPOT = Announcement("n0", "u0", NoticeCause.PREEMPTED, "spot", later(60))
NAME = f"job-trainingrun-{EPOCH}"
DIGEST = f"sha256:{'a' * 64}"
ONE = role(replicas=1, restart=RestartPolicy.ON_FAILURE)


def job(policy: CheckpointPolicy = PROCESS, *roles: Role, **fields: object) -> Workload:
    made = workload(*(roles or (ONE,)), rules=Rules(succeeded_when=(("worker",),)))
    return replace(made, checkpoint=policy, **fields)


def running(**changes: object) -> Record:
    return checkpointed_jobs.running(1, **changes)


def images(at: datetime = NOW, epoch: int = EPOCH - 100) -> SavedCheckpoint:
    """Return an earlier checkpoint of processes."""
    image = {"main": f"registry.example/team/train@{DIGEST}"}
    return SavedCheckpoint(0, DIGEST, at, epoch=epoch, level="Process", images=image)


def backup(phase: str = "Completed", name: str = NAME, **changes: object) -> CheckpointBackup:
    status = CheckpointBackupStatus(
        phase=phase,
        message="no room",
        last_checkpoint_time=later(2),
        completion_time=later(7),
        built_images=[BuiltImage("main", "team/train:job-0", pushed=True)],
        source_pod_uid=pod().uid,
        digests={"main": DIGEST},
        size=1000,
    )
    return CheckpointBackup(ObjectMeta(name=name, uid=f"uid-{name}"), status=replace(status, **changes))


def observe(
    life: Life,
    at: float,
    *children: CheckpointBackup,
    pods: Sequence[ObservedPod] | None = None,
    announced: Sequence[Announcement] = (),
    **changes: Any,
) -> Plan:
    """Reconcile at this second, with one running pod unless others are given."""
    existing = (pod(node="n0"),) if pods is None else pods
    return life.decide(at, existing, *announced, children=children, **changes)


def running_life(wanted: Workload, record: Record | None = None) -> Life:
    return Life(wanted, record or running())


def written(plan: Plan) -> list[dict[str, Any]]:
    """Return the specs of the backups that a plan creates."""
    created = [action.child for action in plan.actions if isinstance(action, Apply)]
    return [
        {"name": child.name, **msgspec.to_builtins(child.body["spec"])}
        for child in created
        if child.kind is CheckpointBackup
    ]


def phase(life: Life) -> str:
    return life.record.phase.value


def removed(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Remove)]


OLD_LISTS: dict[str, Sequence[ObservedPod]] = {"no pod yet": (), "pod without a node": (pod(node=""),)}


@pytest.mark.parametrize("pods", OLD_LISTS.values(), ids=OLD_LISTS.keys())
def test_pod_whose_processes_are_saved_is_moved_once_a_newer_list_shows_where_it_is(
    pods: Sequence[ObservedPod],
) -> None:
    life = running_life(job())
    observe(life, 0, announced=[SPOT])
    observe(life, 8, backup(), pods=pods, announced=[SPOT])
    assert life.record.saved
    assert [notice.step for notice in life.record.notices] == ["Saving"]
    moved = observe(life, 9, backup(), announced=[SPOT])
    assert [action.name for action in moved.actions if isinstance(action, DeletePod)] == ["job-worker-0"]
    assert life.record.replacement("worker", 0) == 1


def test_pod_whose_processes_are_saved_and_that_no_list_shows_is_not_waited_for_after_the_deadline() -> None:
    life = running_life(job())
    observe(life, 0, announced=[SPOT])
    observe(life, 8, backup(), pods=(), announced=[SPOT])
    observe(life, 55, backup(), pods=(), announced=[SPOT])
    assert [notice.step for notice in life.record.notices] == ["Saved"]


def test_notice_makes_one_backup_and_the_pod_continues_from_its_image() -> None:
    life = running_life(job())
    [spec] = written(observe(life, 0, announced=[SPOT]))
    assert spec == {
        "name": NAME,
        "schedule": "immediately",
        "podRef": {"name": "job-worker-0"},
        "resourceRef": {"apiVersion": "argosy.dev/v1alpha1", "kind": "TrainingRun", "name": "job"},
        "registry": {
            "url": "registry.example",
            "repository": "team/train",
            "secretRef": {"name": "login"},
        },
        "containers": [{"name": "main", "image": "team/train:job-job-uid-main-0"}],
    }
    [again] = written(observe(life, 1, announced=[SPOT]))
    assert again == spec, "until it is seen, the same one is created: its name is taken"
    assert not written(observe(life, 2, backup("ImagePushing"), announced=[SPOT]))
    done = observe(life, 8, backup(), announced=[SPOT])
    assert [action.name for action in done.actions if isinstance(action, DeletePod)] == ["job-worker-0"]
    assert life.record.saved == replace(images(later(2), EPOCH), size=1000, seconds=7.0)
    moved = observe(life, 9, backup(), pods=(), announced=[SPOT])
    assert CreatePod("worker", 0, 1, 1) in moved.actions
    assert restored_checkpoint(life.wanted, life.record) == life.record.saved


def test_suspension_waits_for_the_processes() -> None:
    life = running_life(job(suspended=True))
    [spec] = written(observe(life, 0))
    assert spec["name"] == NAME
    assert phase(life) == "Running"
    observe(life, 8, backup())
    assert phase(life) == "Suspended"
    assert restored_checkpoint(life.wanted, life.record) is not None


def test_failed_backup_is_not_waited_for_and_training_goes_on() -> None:
    life = running_life(job(suspended=True))
    observe(life, 0)
    plan = observe(life, 8, backup("Failed"))
    assert life.record.phase is Phase.SUSPENDED
    [failed] = [event for event in plan.events if event.reason == "CheckpointFailed"]
    assert (failed.type, failed.message) == ("Warning", f"CheckpointBackup {NAME}: no room")
    assert life.record.saved is None


UNUSABLE: dict[str, dict[str, object]] = {
    "image that was not pushed": {"built_images": [BuiltImage("main", "team/train:job-0")]},
    "no digest, as with a CRD that drops it": {"digests": {}},
    "another pod of the same name": {"source_pod_uid": "later"},
    "backup that is still being made": {"phase": "ImagePushing"},
}


@pytest.mark.parametrize("changes", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_no_checkpoint_without_a_pushed_image_of_the_pod(changes: dict[str, object]) -> None:
    life = running_life(job())
    observe(life, 0, announced=[SPOT])
    made = backup()
    observe(life, 8, replace(made, status=replace(made.status, **changes)), announced=[SPOT])
    assert life.record.saved is None
    assert life.record.order_in_force is not None


def test_program_that_succeeds_while_it_is_saved_has_succeeded() -> None:
    life = running_life(job())
    observe(life, 0, announced=[SPOT])
    ended = replace(pod(node="n0"), phase="Succeeded", exit_code=0)
    observe(life, 8, backup(), pods=(ended,), announced=[SPOT])
    assert life.record.phase is Phase.SUCCEEDED


def test_interval_uses_tags_again_and_removes_old_backups() -> None:
    life = running_life(job(replace(PROCESS, interval=600.0, keep_last=1)))
    tags: list[str] = []
    last: list[CheckpointBackup] = []
    for tick in range(1, 5):
        at = tick * 700.0
        plan = observe(life, at, *last)
        [spec] = written(plan)
        tags.append(spec["containers"][0]["image"].rpartition("-")[2])
        assert removed(plan) == [item.metadata.name for item in last]
        digest = {"main": f"sha256:{tick:064}"}
        last = [backup(name=spec["name"], last_checkpoint_time=later(at + 1), digests=digest)]
        observe(life, at + 3, *last)
        assert life.record.saved is not None
        assert life.record.saved.digest == f"sha256:{tick:064}"
    assert tags == ["0", "1", "2", "0"]


class Choice(Struct):
    record: Record = running()
    acknowledged: SavedCheckpoint | None = None
    nodes: dict[str, str] = field(default_factory=lambda: {"n0": ""})
    target: bool = True
    template: dict[str, object] = field(default_factory=lambda: {"containers": [{"name": "main"}]})
    policy: CheckpointPolicy = AUTO
    want: str = "Process"


BY_PROGRAM = SavedCheckpoint(7, DIGEST, NOW)
AS_USER: dict[str, object] = {"containers": [{"name": "main", "securityContext": {"runAsUser": 1000}}]}
CHOICES = {
    "program that has acknowledged nothing, nodes can: its processes": Choice(),
    "program that has acknowledged a checkpoint: the program": Choice(acknowledged=BY_PROGRAM, want=""),
    "program that has done so in an earlier pod: the program": Choice(running(saved=BY_PROGRAM), want=""),
    "last checkpoint was of the processes: they again": Choice(running(saved=images())),
    "node of the pod cannot: the program": Choice(nodes={}, want=""),
    "no other node can: the program": Choice(target=False, want=""),
    "node saves processes of root only, pod of root: its processes": Choice(nodes={"n0": "root"}),
    "node saves processes of root only, pod of a user: the program": Choice(
        nodes={"n0": "root"}, template=AS_USER, want=""
    ),
    "node saves processes of all, pod of a user: its processes": Choice(template=AS_USER),
    "several containers: the program": Choice(
        template={"containers": [{"name": "main"}, {"name": "logs"}]}, want=""
    ),
    "level Process and nodes without labels: its processes": Choice(nodes={}, target=False, policy=PROCESS),
    "level App: the program": Choice(policy=replace(AUTO, level=CheckpointLevel.APP), want=""),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_who_saves(case: Choice) -> None:
    life = running_life(job(case.policy, replace(ONE, template={"spec": case.template})), case.record)
    pods = (replace(pod(node="n0"), saved=case.acknowledged),)
    plan = observe(life, 0, pods=pods, announced=[SPOT], dump_nodes=case.nodes, can_restore=case.target)
    assert life.record.order is not None
    assert life.record.order.level == case.want
    assert len(written(plan)) == (1 if case.want else 0)


def test_auto_leaves_an_image_whose_processes_keep_failing_to_the_program() -> None:
    failures = tuple(
        RestartEntry(later(at), "worker", 0, "NonZeroExit", "Pod", exit_code=1) for at in (10, 20)
    )
    once = running_life(job(AUTO), running(saved=images(), restart_history=failures[:1]))
    observe(once, 30)
    assert once.record.saved == images()
    life = running_life(job(AUTO), running(saved=images(), restart_history=failures))
    plan = observe(life, 30)
    assert life.record.saved is None
    assert [(event.reason, event.message) for event in plan.events] == [
        (
            "CheckpointInvalid",
            "processes that were restored have failed 2 times; the program resumes by itself",
        )
    ]
    kept = running_life(job(PROCESS), running(saved=images(), restart_history=failures))
    observe(kept, 30)
    assert kept.record.saved == images(), "with the level Process there is nothing else to continue from"


OBSTACLES = {
    "two pods": (job(PROCESS, role(replicas=2)), "more than one pod"),
    "two roles": (job(PROCESS, role("a", 1), role("b", 1)), "more than one pod"),
    "restart Always": (job(PROCESS, role(replicas=1, restart=RestartPolicy.ALWAYS)), "with restart Always"),
    "containers restarted in place": (
        job(limits=Limits(escalation=Escalation(container=3))),
        "with limits.escalation.container",
    ),
    "one pod": (job(), ""),
}


@pytest.mark.parametrize(("wanted", "reason"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_what_keeps_processes_from_being_saved(wanted: Workload, reason: str) -> None:
    found = obstacle(wanted)
    assert found.startswith(reason) if reason.startswith("with") else reason in found
    assert bool(found) == bool(reason)


def test_role_that_gets_smaller_saves_no_processes_while_several_pods_run() -> None:
    two = role_record(Phase.RUNNING, size=2, created=2, phase_since=NOW)
    life, nodes = running_life(job(AUTO, generation=2), running(roles={"worker": two})), {"n0": "", "n1": ""}
    plan = observe(life, 0, pods=[pod(node="n0"), pod(1, node="n1")], dump_nodes=nodes, can_restore=True)
    assert life.record.order_in_force
    assert life.record.order_in_force.level == "", "the program is asked"
    assert not written(plan)
