"""Query parameters shared by writes: dry run, field manager, field validation."""

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
    """The 422 answer to a list of field errors."""
    status = invalid_status(group, kind, name, errors)
    details = status["details"]
    assert isinstance(details, dict)
    for field in ("name", "kind"):
        if not details.get(field):
            details.pop(field, None)
    return StatusError(422, "Invalid", str(status["message"]), details)


def write_options(request: Request, kind: str, *, applies: bool | None = None) -> WriteOptions:
    """Read and check the options; `kind` is CreateOptions, UpdateOptions or PatchOptions.

    `applies` says of a patch whether it is applied, which needs a manager and may be forced.
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
        at, character = next((i, c) for i, c in enumerate(manager) if not c.isprintable())
        why = f"invalid character U+{ord(character):04X} (at position {at})"
        errors.append(invalid("fieldManager", manager, why))
    validation = request.parameter("fieldValidation")
    if validation not in ("", "Strict", "Warn", "Ignore"):
        errors.append(not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    if errors:
        raise invalid_error("meta.k8s.io", kind, "", errors)
    return WriteOptions(
        bool(dry_run), manager or user_agent_manager(request), cast("FieldValidation", validation or "Warn")
    )


def user_agent_manager(request: Request) -> str:
    """Who writes when it does not say: the first word of its user agent."""
    agent = request.header(b"user-agent").split("/", 1)[0]
    return agent[:128] if agent.isprintable() and agent else "unknown"
