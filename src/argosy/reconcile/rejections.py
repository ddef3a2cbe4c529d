"""Translates rejections of pods by the API server into errors about fields of the job's spec.

The API server names a field of the pod, such as `spec.initContainers[1].ports[0].containerPort`, but the user
wrote a template, in which that container may be the first. The path is followed through both. A field that is
not in the template was added by the operator; then the message of the API server is reported unchanged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from argosy.engine.errors import ApiError, BadRequest, Invalid
from argosy.kinds.template import known_fields
from argosy.kinds.text import did_you_mean
from argosy.workload.model import Json

_MAX_FIELDS = 4
"""Number of rejected fields that a message names."""

_SEGMENT = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_UNKNOWN = re.compile(r'unknown field "([^"]+)"')


class SpecRejectedError(Exception):
    """The API server rejected what the user wrote; the message names fields of the job's spec."""


def template_error(error: ApiError, template: Json, body: Json, path: str) -> str:
    """Return what is wrong in the template at `path`, from which the rejected `body` was rendered.

    Empty if a rejected field is not in the template.
    """
    errors: list[str] = []
    for field, message in _rejected_fields(error):
        written = _path_in_template(field, template, body)
        if written is None:
            return ""
        errors.append(f"{path}.{written}: {message or _unknown_field(written)}")
    unique = list(dict.fromkeys(errors))
    more = [f"and {len(unique) - _MAX_FIELDS} more"] if len(unique) > _MAX_FIELDS else []
    return "; ".join([*unique[:_MAX_FIELDS], *more])


def _rejected_fields(error: ApiError) -> Iterator[tuple[str, str]]:
    """Yield the path in the pod and the message of each rejected field; no message for an unknown field."""
    if isinstance(error, Invalid) and error.details:
        yield from ((cause.field, cause.message) for cause in error.details.causes or ())
    if isinstance(error, BadRequest):
        yield from ((field, "") for field in _UNKNOWN.findall(error.message))


def _unknown_field(path: str) -> str:
    return f"unknown field{did_you_mean(path.rpartition('.')[2], known_fields(path))}"


def _path_in_template(field: str, template: Json, body: Json) -> str | None:
    """Return the path in the template of what is at `field` in the pod; None if it is not in the template."""
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
        exists = isinstance(rendered, Mapping) and step in rendered
        rendered = rendered[step] if isinstance(rendered, Mapping) and exists else None
        if exists and not (isinstance(written, Mapping) and step in written):
            return None
        written = written.get(step) if isinstance(written, Mapping) else None
        path += f"[{key}]" if key else f".{name}"
    return path.removeprefix(".") or None


def _index(written: Sequence[object], rendered: Sequence[object], wanted: int) -> int | None:
    """Return the index in the template of an element of the rendered list, to which others were added."""
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
