"""Chooses which replicas of a role are removed when it must shrink: those whose loss costs least."""

from argosy.workload.current_pods import current_pods
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Workload
from argosy.workload.notice import NoticeResponse
from argosy.workload.observed import Observed
from argosy.workload.record import Record


def choose_victims(
    workload: Workload, role: str, record: Record, observed: Observed, candidates: IndexSet, count: int
) -> IndexSet:
    """Return `count` of the candidates, or fewer if too few may be removed.

    First those that were asked to leave already, then those that do not run, then those on a node that will
    end, then those of lower `controller.kubernetes.io/pod-deletion-cost`, then the highest indexes; never a
    coordinator.
    """
    ending = {notice.node for notice in record.notices if notice.response != NoticeResponse.NONE}
    pods = {pod.index: pod for pod in current_pods(record, role, observed) if not pod.terminating}

    asked = record.asked_to_leave(role)

    def cost(index: int) -> tuple[bool, bool, bool, int, int]:
        pod, stays = pods.get(index), index not in asked
        if pod is None or pod.phase != "Running":
            return stays, False, False, 0, -index
        return stays, True, pod.node not in ending, pod.deletion_cost, -index

    removable = (index for index in candidates if not workload.is_coordinator(role, index))
    return IndexSet.of(sorted(removable, key=cost)[:count])
