"""When a changed status is worth a write.

Phases, conditions, reasons and the Record go out at once, since people and decisions hang on them. Numbers
of pods, and messages that only repeat them, change with every pod event of a large job: for them alone an
object is not written within a second of its last write.
"""

from msgspec import Struct

from argosy.engine.dynamic import Json
from argosy.kinds.meta import ObjectMeta

COUNTS_EVERY = 1.0
"""Seconds from one write to the next that only tells numbers."""
RECORD = "argosy"
_NUMBERS_THAT_MATTER = frozenset({"observed_generation"})
_WORDS_THAT_COUNT = frozenset({"message", "workers"})


def urgent(old: Struct, new: Struct) -> bool:
    """Whether more than counts differ."""
    return _essentially_differ(old, new, numbers=False)


def status_body(meta: ObjectMeta, status: Struct) -> Json:
    """What to PUT: refused if anybody has written the object since it was seen."""
    seen = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {"metadata": seen, "status": status}


def _essentially_differ(old: object, new: object, *, numbers: bool) -> bool:
    """Looks only where something differs at all, and no further than the first difference that matters."""
    if isinstance(old, Struct) and type(old) is type(new):
        pairs = [(name, getattr(old, name), getattr(new, name)) for name in old.__struct_fields__]
    elif isinstance(old, dict) and isinstance(new, dict):
        pairs = [(name, old.get(name), new.get(name)) for name in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [("", *pair) for pair in zip(old, new, strict=True)]
    else:
        return old != new
    return any(before != after and _matters(name, before, after, numbers) for name, before, after in pairs)


def _matters(name: str, old: object, new: object, numbers: bool) -> bool:
    """Whether this part of a status has changed in more than counts; inside the Record every number
    matters."""
    kinds = {type(old), type(new)} - {type(None)}
    if name in _WORDS_THAT_COUNT and kinds == {str}:
        return False
    numbers = numbers or name == RECORD or name in _NUMBERS_THAT_MATTER
    if kinds == {int} and not numbers:
        return False
    return _essentially_differ(old, new, numbers=numbers)
