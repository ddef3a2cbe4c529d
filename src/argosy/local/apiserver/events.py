"""Converts events between core/v1, in which they are stored, and events.k8s.io/v1."""

from argosy.local.schema.model import Json

# events.k8s.io name -> core name
_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
}
_BACK = {core: new for new, core in _RENAMED.items()}


def to_events_group(obj: Json) -> Json:
    return {_BACK.get(key, key): value for key, value in obj.items()}


def to_core(obj: Json) -> Json:
    """Return an events.k8s.io/v1 Event as it is stored."""
    return {_RENAMED.get(key, key): value for key, value in obj.items()}
