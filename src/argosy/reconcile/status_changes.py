"""Decides how soon a changed status is written.

| what changed | written |
|---|---|
| phases, conditions, reasons, the Record | at once |
| counts of pods, which change with every pod event of a large job | one second after the last write |
| messages only, such as a scheduler's that counts nodes | ten seconds after the last write |

During a burst (see `bursts`) counts are written five seconds after the last write.
"""

from enum import IntEnum

from msgspec import Struct

from argosy.engine.dynamic import Json
from argosy.kinds.meta import ObjectMeta

COUNTS_SECONDS = 1.0
"""Minimum time between a write and one that changes only counts."""
MESSAGES_SECONDS = 10.0
"""Minimum time between a write and one that changes only messages."""
COUNTS_SECONDS_IN_BURST = 5.0
RECORD = "argosy"
_NUMBERS_THAT_MATTER = frozenset({"observed_generation"})
_COUNTS_IN_WORDS = frozenset({"workers"})
_COUNTS_IN_NAMES = frozenset({"current_workers"})
"""Lists that change with every pod, like the numbers of pods."""
_MESSAGES = frozenset({"message"})
_WRITE_TIMES = frozenset({"last_reconcile_time"})
"""Times of the write itself, which are no reason for one."""


class _Weight(IntEnum):
    NONE = 0
    MESSAGE = 1
    COUNT = 2
    URGENT = 3


_SECONDS = {
    _Weight.NONE: MESSAGES_SECONDS,
    _Weight.MESSAGE: MESSAGES_SECONDS,
    _Weight.COUNT: COUNTS_SECONDS,
    _Weight.URGENT: 0.0,
}


def write_interval(old: Struct, new: Struct, *, in_burst: bool = False) -> float:
    """Return the seconds that must have passed since the last write before this change is written."""
    weight = _weigh("", old, new, numbers=False)
    return COUNTS_SECONDS_IN_BURST if in_burst and weight is _Weight.COUNT else _SECONDS[weight]


def status_body(meta: ObjectMeta, status: Struct) -> Json:
    """Return the body to PUT; its resourceVersion makes it a conflict if the job has changed."""
    precondition = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {"metadata": precondition, "status": status}


def _weigh(name: str, old: object, new: object, *, numbers: bool) -> _Weight:
    """Weigh the change of one part of a status; inside the Record every number matters."""
    if old == new or name in _WRITE_TIMES:
        return _Weight.NONE
    kinds = {type(old), type(new)} - {type(None)}
    if name in _MESSAGES and kinds == {str}:
        return _Weight.MESSAGE if old and new else _Weight.COUNT
    if name in _COUNTS_IN_WORDS and kinds == {str}:
        return _Weight.COUNT
    if name in _COUNTS_IN_NAMES:
        return _Weight.COUNT
    numbers = numbers or name == RECORD or name in _NUMBERS_THAT_MATTER
    if kinds == {int} and not numbers:
        return _Weight.COUNT
    parts = _parts(old, new)
    if parts is None:
        return _Weight.URGENT
    heaviest = _Weight.NONE
    for part, before, after in parts:
        heaviest = max(heaviest, _weigh(part, before, after, numbers=numbers))
        if heaviest is _Weight.URGENT:
            break
    return heaviest


def _parts(old: object, new: object) -> list[tuple[str, object, object]] | None:
    """Return what both are made of, by name; None if they are made of different things or of none."""
    if isinstance(old, Struct) and type(old) is type(new):
        return [(name, getattr(old, name), getattr(new, name)) for name in old.__struct_fields__]
    if isinstance(old, dict) and isinstance(new, dict):
        return [(name, old.get(name), new.get(name)) for name in {**old, **new}]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [("", *pair) for pair in zip(old, new, strict=True)]
    return None
