"""What an API server refused in a pod, told at the place in the job's definition where it was written.

The server speaks of the pod, `spec.initContainers[1].ports[0].containerPort`; its user wrote a template, in
which that container may be the first. The path is followed through both; where it leads to something that is
not in the template, the operator put it there and the user is not to blame: then it is told as the server
said it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from argosy.engine.errors import ApiError, BadRequest, Invalid
from argosy.kinds.messages import did_you_mean
from argosy.kinds.template import known_fields
from argosy.workload.model import Json

_MOST = 4
"""Refused fields that are told; a person mends one after the other."""

_SEGMENT = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_UNKNOWN = re.compile(r'unknown field "([^"]+)"')


class SpecRejectedError(Exception):
    """The job's definition is what is refused; the message names its fields."""


def template_error(error: ApiError, template: Json, body: Json, path: str) -> str:
    """What to mend in the template at `path`, of which the refused `body` was made; empty if that cannot be
    said."""
    told: list[str] = []
    for field, message in _refused(error):
        written = _place(field, template, body)
        if written is None:
            return ""
        told.append(f"{path}.{written}: {message or _unknown_field(written)}")
    once = list(dict.fromkeys(told))
    more = [f"and {len(once) - _MOST} more"] if len(once) > _MOST else []
    return "; ".join([*once[:_MOST], *more])


def _refused(error: ApiError) -> Iterator[tuple[str, str]]:
    """Yield the path in the pod and the message of each refused field; no message for an unknown field."""
    if isinstance(error, Invalid) and error.details:
        yield from ((cause.field, cause.message) for cause in error.details.causes or ())
    if isinstance(error, BadRequest):
        yield from ((field, "") for field in _UNKNOWN.findall(error.message))


def _unknown_field(path: str) -> str:
    return f"unknown field{did_you_mean(path.rpartition('.')[2], known_fields(path))}"


def _place(field: str, template: Json, body: Json) -> str | None:
    """The path in the template to what stands at `field` of the pod; None if it does not come from there."""
    path = ""
    written: object = template
    rendered: object = body
    for name, key in _SEGMENT.findall(field):
        step = key or name
        if isinstance(rendered, list) and step.isdigit():
            index = _index(written if isinstance(written, list) else [], rendered, int(step))
            if index is None:
                return None
            written, rendered = written[index], rendered[int(step)]  # type: ignore[index]  # it has that index
            path += f"[{index}]"
            continue
        had = isinstance(rendered, Mapping) and step in rendered
        rendered = rendered[step] if isinstance(rendered, Mapping) and had else None
        if had and not (isinstance(written, Mapping) and step in written):
            return None
        written = written.get(step) if isinstance(written, Mapping) else None
        path += f"[{key}]" if key else f".{name}"
    return path.removeprefix(".") or None


def _index(written: Sequence[object], rendered: Sequence[object], wanted: int) -> int | None:
    """Where the element stood before others were put before, between and after."""
    at = 0
    for index, element in enumerate(written):
        while at < len(rendered) and _identity(rendered[at]) != _identity(element):
            at += 1
        if at == wanted:
            return index
        at += 1
    return None


def _identity(element: object) -> object:
    if not isinstance(element, Mapping):
        return element
    return element.get("mountPath") or element.get("name") or element.get("containerPort")
