"""Errors of fields, in the format of Kubernetes.

`str(error)` is a part of the message of a 422 response, `error.cause()` the entry in its `details.causes`,
and `invalid_status` the whole `Status`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from argosy.local.schema.model import Json


class ErrorType(StrEnum):
    """Types of field errors; the values are the `reason`s of causes."""

    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_SHORT = "FieldValueTooShort"
    TOO_MANY = "FieldValueTooMany"
    TOO_FEW = "FieldValueTooFew"
    INTERNAL = "InternalError"
    TYPE_INVALID = "FieldValueTypeInvalid"


TITLES = {
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.REQUIRED: "Required value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_SHORT: "Too short",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.TOO_FEW: "Too few",
    ErrorType.INTERNAL: "Internal error",
    ErrorType.TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = {
    ErrorType.REQUIRED,
    ErrorType.FORBIDDEN,
    ErrorType.TOO_LONG,
    ErrorType.TOO_SHORT,
    ErrorType.INTERNAL,
}


class Omitted:
    """Marks a bad value that a message does not show."""


OMITTED = Omitted()


NO_PATH = "<nil>"
"""The path of errors that belong to no field."""


class FieldError(Struct, frozen=True):
    type: ErrorType
    path: str
    bad_value: object = ""
    detail: str = ""

    @property
    def body(self) -> str:
        """The error without the name of its field."""
        text = TITLES[self.type]
        if self.type not in _WITHOUT_VALUE and self.bad_value is not OMITTED:
            text += f": {show(self.bad_value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    def cause(self) -> Json:
        """Return the entry in `details.causes` of a Status."""
        return {"reason": str(self.type), "message": self.body, "field": self.path}


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(ErrorType.REQUIRED, path, "", detail)


def invalid(path: str, value: object, detail: str) -> FieldError:
    return FieldError(ErrorType.INVALID, path, value, detail)


def invalid_each(path: str, value: object, details: Iterable[str]) -> Iterator[FieldError]:
    """Return an error for each thing that is wrong with a value."""
    return (invalid(path, value, detail) for detail in details)


def unsupported(path: str, value: object, supported: Sequence[object]) -> Iterator[FieldError]:
    """Yield the error of a value that is set and not supported."""
    if value is not None and value not in supported:
        yield not_supported(path, value, supported)


def type_invalid(path: str, value: object, detail: str) -> FieldError:
    return FieldError(ErrorType.TYPE_INVALID, path, value, detail)


def duplicate(path: str, value: object) -> FieldError:
    return FieldError(ErrorType.DUPLICATE, path, value)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(ErrorType.FORBIDDEN, path, "", detail)


def not_found(path: str, value: object) -> FieldError:
    return FieldError(ErrorType.NOT_FOUND, path, value)


def not_supported(path: str, value: object, supported: Sequence[object]) -> FieldError:
    listed = ", ".join(show(v if isinstance(v, str) else show(v)) for v in supported)
    return FieldError(ErrorType.NOT_SUPPORTED, path, value, f"supported values: {listed}" if listed else "")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(
        ErrorType.TOO_LONG,
        path,
        "<value omitted>",
        f"may not be more than {limit} {'byte' if limit == 1 else 'bytes'}",
    )


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(
        ErrorType.TOO_MANY, path, count, f"must have at most {limit} {'item' if limit == 1 else 'items'}"
    )


def invalid_status(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Json:
    """Return the Status of a 422 response. `group` is the API group alone, such as `apps`."""
    qualified = f"{kind}.{group}" if group else kind
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{qualified} {show(name)} is invalid{aggregate(errors)}",
        "reason": "Invalid",
        "details": {
            "name": name,
            **({"group": group} if group else {}),
            "kind": kind,
            "causes": [error.cause() for error in errors],
        },
        "code": 422,
    }


def aggregate(errors: Sequence[FieldError]) -> str:
    """Return the messages in the form `: first` or `: [first, second]`, each of them once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    if not texts:
        return ""
    return f": {texts[0]}" if len(texts) == 1 else f": [{', '.join(texts)}]"


def show(value: object) -> str:
    """Return a bad value as messages show it: as JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str, sort_keys=True)
