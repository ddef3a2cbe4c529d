"""When a changed status is worth a write.

Phases, conditions, reasons and the Record go out at once, since people and decisions hang on them. Numbers
of pods, and messages that only repeat them, change with every pod event of a large job: they go out at most
once a second, and less often where the API server takes long to answer.
"""

import msgspec
from msgspec import Struct

from argosy.engine.dynamic import Json
from argosy.kinds.meta import ObjectMeta

COUNTS_EVERY = 1.0
COUNTS_FACTOR = 10.0
COUNTS_MOST = 10.0
RECORD = "argosy"
_NUMBERS_THAT_MATTER = frozenset({"observedGeneration"})
_WORDS_THAT_COUNT = frozenset({"message", "workers"})


def urgent(old: Struct, new: Struct) -> bool:
    """Whether more than counts differ."""
    return _essence(msgspec.to_builtins(old)) != _essence(msgspec.to_builtins(new))


def next_counts(began: float, ended: float) -> float:
    """When numbers may be written again after a write that took this long: ten times as long, between one
    second and ten."""
    return began + min(max((ended - began) * COUNTS_FACTOR, COUNTS_EVERY), COUNTS_MOST)


def status_body(meta: ObjectMeta, status: Struct) -> Json:
    """What to PUT: refused if anybody has written the object since it was seen."""
    seen = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {"metadata": seen, "status": status}


def _essence(value: object, numbers: bool = False) -> object:
    """The value without what only counts; inside the Record every number matters."""
    if isinstance(value, dict):
        return {
            key: _essence(part, numbers or key == RECORD)
            for key, part in value.items()
            if key not in _WORDS_THAT_COUNT
            and (numbers or key in _NUMBERS_THAT_MATTER or type(part) is not int)
        }
    if isinstance(value, list):
        return [_essence(part, numbers) for part in value]
    return value
