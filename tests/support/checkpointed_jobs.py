"""Jobs with checkpoints: builds them and their Records, and reconciles them again and again."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.decide import decide
from argosy.workload.model import Phase, RestartPolicy, RestartScope, Role, Rules, Workload
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import DeletePod, Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from tests.support.workloads import NOW, later, pod, role, role_record, workload

POLICY = CheckpointPolicy("file:///store/ns/job-uid")
SPOT = Announcement("n1", "u1", NoticeCause.PREEMPTED, "spot", later(30))
EPOCH = int(NOW.timestamp())
WORKERS = role(replicas=3, restart=RestartPolicy.ON_FAILURE)
LIVE = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))


def job(
    workers: Role = WORKERS, scope: RestartScope = RestartScope.POD, policy: CheckpointPolicy = POLICY
) -> Workload:
    made = workload(workers, rules=replace(LIVE, restart_scope=scope))
    return replace(made, checkpoint=policy)


def running(size: int = 3, **changes: object) -> Record:
    """Return the Record of a job that runs since NOW."""
    record = Record(
        phase=Phase.RUNNING,
        phase_since=NOW,
        started_at=NOW,
        attempt_started_at=NOW,
        first_running_at=NOW,
        roles={"worker": role_record(Phase.RUNNING, size=size, created=size, phase_since=NOW)},
    )
    return replace(record, **changes)


def saved(step: int = 5, at: float = 4, epoch: int = EPOCH, seconds: float = 2.0) -> SavedCheckpoint:
    return SavedCheckpoint(step, f"sha256:{step:064}", later(at), seconds=seconds, epoch=epoch)


def workers(ack: SavedCheckpoint | None = None, **changes: object) -> tuple[ObservedPod, ...]:
    """Return running pods on the nodes n0, n1 and n2; `changes` are those of the pod on n1."""
    pods = [pod(index, node=f"n{index}") for index in range(3)]
    return replace(pods[0], saved=ack), replace(pods[1], **changes), pods[2]


class Life:
    """A job that is reconciled again and again."""

    def __init__(self, wanted: Workload, record: Record | None = None) -> None:
        self.wanted = wanted
        self.record = record or running()

    def decide(
        self, at: float, pods: Sequence[ObservedPod], *announced: Announcement, **changes: Any
    ) -> Plan:
        """Reconcile at this second with these pods and announced ends of nodes; `changes` is what else is
        observed."""
        notices = find_notices(pods, {announcement.node: announcement for announcement in announced})
        observed = replace(Observed(pods=tuple(pods), notices=notices), **changes)
        plan = decide(self.wanted, self.record, observed, later(at))
        assert decode(encode(plan.record)) == plan.record
        self.record = plan.record
        return plan


def deleted(plan: Plan) -> list[tuple[str, int | None]]:
    return [
        (action.name, action.grace_period_seconds) for action in plan.actions if isinstance(action, DeletePod)
    ]


def steps(record: Record) -> list[tuple[str, str]]:
    return [(notice.response, notice.step) for notice in record.notices]
