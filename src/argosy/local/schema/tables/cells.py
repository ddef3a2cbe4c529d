"""Columns and cells of tables: ages, labels, selectors, shortened lists."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_texts

Cell: TypeAlias = Callable[[Json, datetime], object]
"""Returns the cell of an object; ages depend on the time."""


class Column(Struct, frozen=True, kw_only=True):
    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    """1 for a column that only `-o wide` shows."""

    def json(self) -> Json:
        """Return the column in a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def human_duration(seconds: float) -> str:
    """Return a duration in two or three significant figures: 90s, 5m30s, 3h20m, 2d5h, 400d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(days, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def parse_time(value: object) -> datetime | None:
    """Return an RFC 3339 time of an object, if it is one."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def age(value: object, now: datetime) -> str:
    """Return how long ago a time was; `<unknown>` without one."""
    at = parse_time(value)
    return "<unknown>" if at is None else human_duration((now - at).total_seconds())


def created(item: Json, now: datetime) -> str:
    """Return an object's age."""
    return age(get_map(item, "metadata").get("creationTimestamp"), now)


def name(item: Json) -> object:
    """Return an object's name."""
    return get_map(item, "metadata").get("name", "")


def labels_text(labels: object) -> str:
    """Return `a=1,b=2`, sorted, or `<none>`."""
    if not isinstance(labels, Mapping) or not labels:
        return "<none>"
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def selector_text(selector: object) -> str:
    """Return a label selector in the form that `-l` takes, or `<none>`."""
    if not isinstance(selector, dict):
        return "<none>"
    terms = [(str(key), f"{key}={value}") for key, value in get_map(selector, "matchLabels").items()]
    for entry in get_maps(selector, "matchExpressions"):
        key, values = get_str(entry, "key"), ",".join(sorted(get_texts(entry, "values")))
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append((key, forms.get(get_str(entry, "operator"), "<error>")))
    return ",".join(term for _, term in sorted(terms)) or "<none>"


def cut(items: Sequence[str], limit: int = 3, empty: str = "<unset>") -> str:
    """Return the first items, and the number of others."""
    shown = ",".join(items[:limit])
    if len(items) > limit:
        return f"{shown} + {len(items) - limit} more..."
    return shown or empty


def containers(spec: Json) -> tuple[str, str]:
    """Return the names and images of a pod spec's containers."""
    listed = get_maps(spec, "containers")
    return ",".join(get_str(c, "name") for c in listed), ",".join(get_str(c, "image") for c in listed)


def condition(item: Json, type: str) -> str:
    """Return the status of a condition; empty if there is none."""
    return next(
        (get_str(c, "status") for c in get_maps(item, "status", "conditions") if c.get("type") == type), ""
    )
