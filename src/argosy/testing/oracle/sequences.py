"""From a seed and a number to a sequence of steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from argosy.testing.differential import APPLY, Step
from argosy.testing.oracle import access, defining
from argosy.testing.oracle.applying import apply
from argosy.testing.oracle.core import CONFIG_MAP, LEASE, NAMESPACE, SECRET, SERVICE, SERVICE_ACCOUNT
from argosy.testing.oracle.creating import create
from argosy.testing.oracle.deleting import release, remove, remove_all
from argosy.testing.oracle.draw import Draw
from argosy.testing.oracle.kinds import Kind
from argosy.testing.oracle.mistaking import mistake
from argosy.testing.oracle.parts import write_scale, write_status
from argosy.testing.oracle.patching import json_patch, merge_patch, strategic_patch
from argosy.testing.oracle.reading import list_all, next_page, read
from argosy.testing.oracle.scene import Scene
from argosy.testing.oracle.updating import update
from argosy.testing.oracle.watching import follow
from argosy.testing.oracle.widgets import WIDGET
from argosy.testing.oracle.workloads import JOB, POD

Family = Callable[[Scene], list[Step]]

FAMILIES: dict[Family, int] = {
    create: 22,
    update: 12,
    apply: 22,
    merge_patch: 10,
    strategic_patch: 8,
    json_patch: 8,
    write_status: 8,
    write_scale: 3,
    remove: 10,
    release: 4,
    remove_all: 2,
    read: 4,
    list_all: 6,
    next_page: 3,
    follow: 5,
    mistake: 14,
}
"""The families of steps, each with how often it comes."""
GRANTING: dict[Family, int] = {
    access.grant: 12,
    access.as_reader: 60,
    access.ask_rights: 8,
    access.escalate: 8,
    create: 10,
    merge_patch: 5,
}
DEFINING: dict[Family, int] = {defining.change: 15, defining.undefine: 5, defining.refuse: 10}
KINDS: dict[Kind, int] = {
    CONFIG_MAP: 20,
    WIDGET: 25,
    POD: 18,
    JOB: 10,
    SERVICE: 10,
    SECRET: 8,
    LEASE: 5,
    SERVICE_ACCOUNT: 4,
    NAMESPACE: 4,
}
_DEFINING_PERCENT = 2
_GRANTING_PERCENT = 5
_FEWEST, _MOST = 3, 9


@dataclass(frozen=True)
class Sequence:
    seed: int
    number: int
    steps: tuple[Step, ...]


def make(seed: int, number: int) -> Sequence:
    """The sequence of that seed and number: always the same."""
    made = _make(seed, number)
    return replace(made, steps=tuple(_without_quirk(step) for step in made.steps))


def _without_quirk(step: Step) -> Step:
    """Kubernetes keeps a time of deletion that is none in a custom resource to which it is applied."""
    body = step.body
    metadata = body.get("metadata") if isinstance(body, dict) else None
    applied = step.type == APPLY and "/widgets/" in step.path
    if not applied or not isinstance(body, dict) or not isinstance(metadata, dict):
        return step
    kept = {name: value for name, value in metadata.items() if name != "deletionTimestamp"}
    return replace(step, body={**body, "metadata": kept})


def _make(seed: int, number: int) -> Sequence:
    draw = Draw(f"{seed}/{number}")
    if draw.chance(_DEFINING_PERCENT):
        return Sequence(seed, number, tuple(_defining(draw)))
    kinds = [draw.weighted(list(KINDS), list(KINDS.values()))]
    if draw.chance(15):
        kinds.append(draw.pick(list(KINDS)))
    scene = Scene(draw, kinds)
    if draw.chance(_GRANTING_PERCENT):
        return Sequence(seed, number, (*access.grant(scene), *_drawn(scene, GRANTING)))
    return Sequence(seed, number, (*create(scene), *_drawn(scene, FAMILIES)))


def _defining(draw: Draw) -> list[Step]:
    """A sequence about a definition of its own, and objects of it."""
    steps, kinds = defining.defined(draw)
    scene = Scene(draw, kinds)
    return [*steps, *create(scene), *_drawn(scene, FAMILIES | DEFINING), *defining.cleaned(scene)]


def _drawn(scene: Scene, families: dict[Family, int]) -> list[Step]:
    steps: list[Step] = []
    for _ in range(scene.draw.number(_FEWEST, _MOST)):
        family = scene.draw.weighted(list(families), list(families.values()))
        steps += family(scene)
    return steps
