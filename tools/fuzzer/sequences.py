"""Generates a sequence of steps from a seed and a number."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.differential import APPLY, Step
from tools.fuzzer.context import Context
from tools.fuzzer.core_kinds import CONFIG_MAP, LEASE, NAMESPACE, SECRET, SERVICE, SERVICE_ACCOUNT
from tools.fuzzer.families import crd, rbac
from tools.fuzzer.families.apply import apply
from tools.fuzzer.families.create import create
from tools.fuzzer.families.delete import release, remove, remove_all
from tools.fuzzer.families.invalid import mistake
from tools.fuzzer.families.patch import json_patch, merge_patch, strategic_patch
from tools.fuzzer.families.read import list_all, next_page, read
from tools.fuzzer.families.subresources import write_scale, write_status
from tools.fuzzer.families.update import update
from tools.fuzzer.families.watch import follow
from tools.fuzzer.kinds import Kind
from tools.fuzzer.rng import Draw
from tools.fuzzer.widget_kind import WIDGET
from tools.fuzzer.workload_kinds import JOB, POD

Family = Callable[[Context], list[Step]]

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
"""The families of steps with their weights."""
GRANTING: dict[Family, int] = {
    rbac.grant: 12,
    rbac.as_reader: 60,
    rbac.ask_rights: 8,
    rbac.escalate: 8,
    create: 10,
    merge_patch: 5,
}
DEFINING: dict[Family, int] = {crd.change: 15, crd.undefine: 5, crd.refuse: 10}
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
_MIN_STEPS, _MAX_STEPS = 3, 9


@dataclass(frozen=True)
class Sequence:
    seed: int
    number: int
    steps: tuple[Step, ...]


def generate(seed: int, number: int) -> Sequence:
    """The sequence of that seed and number, which is always the same."""
    sequence = _generate(seed, number)
    return replace(sequence, steps=tuple(_without_upstream_quirks(step) for step in sequence.steps))


def _without_upstream_quirks(step: Step) -> Step:
    """The step without values for which kube-apiserver has a known bug.

    Applied to a custom resource, a deletionTimestamp that is not a time is stored. Values of a wrong type in
    the part of a custom resource that the endpoint ignores remove all its managedFields.
    """
    if "/widgets/" not in step.path:
        return step
    ignored = "spec" if "/status" in step.path else "status"
    if isinstance(step.body, list):
        kept = [
            operation
            for operation in step.body
            if not str(operation.get("path") if isinstance(operation, dict) else "").startswith(f"/{ignored}")
        ]
        return replace(step, body=kept)
    if not isinstance(step.body, dict):
        return step
    body = {name: value for name, value in step.body.items() if name != ignored}
    metadata = body.get("metadata")
    if step.type == APPLY and isinstance(metadata, dict):
        body["metadata"] = {name: value for name, value in metadata.items() if name != "deletionTimestamp"}
    return replace(step, body=body)


def _generate(seed: int, number: int) -> Sequence:
    draw = Draw(f"{seed}/{number}")
    if draw.chance(_DEFINING_PERCENT):
        return Sequence(seed, number, tuple(_crd_steps(draw)))
    kinds = [draw.weighted(list(KINDS), list(KINDS.values()))]
    if draw.chance(15):
        kinds.append(draw.pick(list(KINDS)))
    context = Context(draw, kinds)
    if draw.chance(_GRANTING_PERCENT):
        return Sequence(seed, number, (*rbac.grant(context), *_random_steps(context, GRANTING)))
    return Sequence(seed, number, (*create(context), *_random_steps(context, FAMILIES)))


def _crd_steps(draw: Draw) -> list[Step]:
    """A sequence with its own CRD, and objects of it."""
    steps, kinds = crd.defined(draw)
    context = Context(draw, kinds)
    return [*steps, *create(context), *_random_steps(context, FAMILIES | DEFINING), *crd.cleaned(context)]


def _random_steps(context: Context, families: dict[Family, int]) -> list[Step]:
    steps: list[Step] = []
    for _ in range(context.draw.number(_MIN_STEPS, _MAX_STEPS)):
        family = context.draw.weighted(list(families), list(families.values()))
        steps += family(context)
    return steps
