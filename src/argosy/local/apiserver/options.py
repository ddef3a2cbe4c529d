"""Query parameters of writes: dryRun, fieldManager, fieldValidation."""

from typing import Literal, cast

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.status import StatusError
from argosy.local.schema.errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_status,
    not_supported,
    required,
    too_long,
)

FieldValidation = Literal["Strict", "Warn", "Ignore"]


class WriteOptions(msgspec.Struct, frozen=True):
    dry_run: bool
    manager: str
    validation: FieldValidation


def invalid_error(group: str, kind: str, name: str, errors: list[FieldError]) -> StatusError:
    """Return the 422 response with these field errors."""
    status = invalid_status(group, kind, name, errors)
    details = status["details"]
    assert isinstance(details, dict)
    for field in ("name", "kind"):
        if not details.get(field):
            details.pop(field, None)
    return StatusError(422, "Invalid", str(status["message"]), details)


def write_options(request: Request, kind: str, *, applies: bool | None = None) -> WriteOptions:
    """Parse the options; `kind` is CreateOptions, UpdateOptions or PatchOptions.

    `applies` is set for patches: server-side apply needs a manager and can be forced.
    """
    errors: list[FieldError] = []
    if applies and not request.parameter("fieldManager"):
        errors.append(required("fieldManager", "is required for apply patch"))
    if applies is False and "force" in request.query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    dry_run = request.query.get("dryRun", [])
    if any(value != "All" for value in dry_run):
        errors.append(not_supported("dryRun", dry_run, ["All"]))
    manager = request.parameter("fieldManager")
    if len(manager) > 128:
        errors.append(too_long("fieldManager", 128))
    elif not manager.isprintable():
        errors.append(invalid("fieldManager", manager, "should only contain printable characters"))
    validation = request.parameter("fieldValidation")
    if validation not in ("", "Strict", "Warn", "Ignore"):
        errors.append(not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    if errors:
        raise invalid_error("meta.k8s.io", kind, "", errors)
    return WriteOptions(
        bool(dry_run), manager or user_agent_manager(request), cast("FieldValidation", validation or "Warn")
    )


def user_agent_manager(request: Request) -> str:
    """Return the default field manager: the first part of the user agent."""
    agent = request.header(b"user-agent").split("/", 1)[0]
    return agent[:128] if agent.isprintable() and agent else "unknown"
