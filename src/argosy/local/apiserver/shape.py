"""Objects under their schema: unknown fields, pruning, defaults, validation, managed fields.

The one place where the handlers meet the schema library.
"""

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.objects import Json
from argosy.local.apiserver.options import FieldValidation
from argosy.local.apiserver.registry import Served
from argosy.local.schema.errors import FieldError


def admit_fields(obj: Json, served: Served, validation: FieldValidation, request: Request) -> Json:
    return obj


def validate(obj: Json, served: Served, old: Json | None) -> list[FieldError]:
    return []


def track_update(old: Json | None, new: Json, served: Served, manager: str, subresource: str) -> Json:
    return new


def check_applied(obj: Json, served: Served, validation: FieldValidation, request: Request) -> Json:
    return obj


def track_apply(
    live: Json | None, config: Json, served: Served, manager: str, force: bool, subresource: str
) -> Json:
    from argosy.local.schema.patch import merge_patch

    return merge_patch(live or {}, config)
