"""Why a pod cannot go to a node, in Kubernetes' order and words.

The first rule that refuses ends the search, because that is what the counts in a FailedScheduling message
mean; only the resource rule names everything that is short.
"""

from collections import Counter

from argosy.kinds.node_matching import untolerated
from argosy.kinds.resources import insufficient
from argosy.local.controllers.kinds import Taint
from argosy.local.scheduler.interpod_affinity import Surroundings, surroundings
from argosy.local.scheduler.node_affinity import node_wanted, ports_clash
from argosy.local.scheduler.scheduler_cache import PodFacts, Room, World

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def refusals(facts: PodFacts, room: Room, around: Surroundings | None) -> list[str]:
    """Nothing if the pod fits; `around` is what other pods mean for it."""
    spec = facts.pod.spec
    if room.node.spec.unschedulable and untolerated([UNSCHEDULABLE_TAINT], spec.tolerations, "NoSchedule"):
        return ["node(s) were unschedulable"]
    if untolerated(room.node.spec.taints, spec.tolerations, "NoSchedule", "NoExecute"):
        return ["node(s) had untolerated taint(s)"]
    if not node_wanted(facts.pod, room.name, room.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if facts.ports and ports_clash(facts.ports, room.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = [f"Insufficient {name}" for name in insufficient(facts.requests, room.used, room.allocatable)]
    if len(room.pods) >= room.allocatable.get("pods", 110):
        short.insert(0, "Too many pods")
    if short:
        return short
    told = around.refusal(room) if around is not None else ""
    return [told] if told else []


def describe(facts: PodFacts, world: World) -> str:
    """The message of an unschedulable pod: how many nodes refused it, and why."""
    if not world.rooms:
        return "no nodes available to schedule pods"
    around = surroundings(facts, world)
    counts = Counter(reason for room in world.rooms.values() for reason in refusals(facts, room, around))
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(world)} nodes are available: {reasons}."
