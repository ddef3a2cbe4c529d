"""Errors of API requests, typed by what the caller can do about them.

Read again and retry (`Conflict`), relist (`Gone`), treat as absent (`NotFound`), report to the user
(`Invalid`, `BadRequest`, `TooLarge`, `Forbidden`), wait (`Throttled`, `Unavailable`). Every error has the
HTTP status (0 if no response was received), the API's reason and its message.
"""

# ruff: noqa: N818  (the names are the API's own reasons)

from collections.abc import Mapping

import msgspec


class ApiError(Exception):
    def __init__(
        self, status: int, reason: str, message: str, *, details: "StatusDetails | None" = None
    ) -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.message or 'no message'} ({self.status} {self.reason})"


class BadRequest(ApiError):
    """400: the request is malformed."""


class Unauthorized(ApiError):
    """401: the API server does not accept our credentials."""


class Forbidden(ApiError):
    """403: our identity lacks the right."""


class NotFound(ApiError):
    """404: the object or its kind does not exist."""


class Conflict(ApiError):
    """409: another client wrote first, or a precondition does not hold. Read again and retry."""


class AlreadyExists(ApiError):
    """409 on create: an object of that name exists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old. List again."""


class Invalid(ApiError):
    """422: the object does not satisfy its schema or validation."""


class TooLarge(ApiError):
    """413, or an object that is too large for the API server's storage."""


class Throttled(ApiError):
    """429, or a 5xx with Retry-After: the request was not processed."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after: float = 1.0,
        details: "StatusDetails | None" = None,
    ) -> None:
        super().__init__(status, reason, message, details=details)
        self.retry_after = retry_after


class Unavailable(ApiError):
    """5xx, or no response. A write may or may not have been processed."""


class LeaseExpired(ApiError):
    """The request was not sent, because the deadline until which this process may write has passed."""

    def __init__(self) -> None:
        super().__init__(0, "LeaseExpired", "not sent: this process no longer holds the lease")


def without_traceback(error: ApiError) -> ApiError:
    """Return the error without its frames, so that it can be stored without keeping their objects alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class StatusCause(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct):
    """The API's error object (`kind: Status`)."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error for an HTTP response with status 400 or above."""
    try:
        details = _status_decoder.decode(body)
    except msgspec.MsgspecError:
        details = Status(message=body[:500].decode("utf-8", "replace").strip())
    details.code = status
    return error_from_status(details, _parse_retry_after(headers.get("Retry-After", "")))


def error_from_status(status: Status, retry_after: float | None = None) -> ApiError:
    """Return the error for a `Status` object, of a response or of a watch's ERROR event."""
    code, reason, message, details = status.code, status.reason, status.message, status.details
    reason = reason or _REASONS.get(code, "Unknown")
    if retry_after is None and details is not None and details.retry_after_seconds:
        retry_after = float(details.retry_after_seconds)
    if code == 429 or (retry_after is not None and code >= 500):
        after = 1.0 if retry_after is None else retry_after
        return Throttled(code, reason, message, retry_after=after, details=details)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, details=details)
    if code == 500 and any(text in message for text in _TOO_LARGE_MESSAGES):
        return TooLarge(code, reason, message, details=details)
    error_class = _CLASSES.get(code, Unavailable if code >= 500 else ApiError)
    return error_class(code, reason, message, details=details)


_status_decoder = msgspec.json.Decoder(Status)

_CLASSES: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
}

_TOO_LARGE_MESSAGES = ("etcdserver: request is too large", "trying to send message larger than max")
"""Errors of etcd and its client for objects above 1.5 and 2 MiB, which the API server returns as 500."""

_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _parse_retry_after(value: str) -> float | None:
    """Return `Retry-After` in seconds; API servers never send a date."""
    try:
        return max(float(value), 0.0)
    except ValueError:
        return None
