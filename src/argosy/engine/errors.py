"""What a request can fail with, typed by what the caller does about it.

Read again and decide anew (`Conflict`), relist (`Gone`), treat as absent (`NotFound`), report to the user
(`Invalid`, `BadRequest`, `TooLarge`, `Forbidden`), wait (`Throttled`, `Unavailable`). Every error carries the
HTTP status (0 when no answer came), the API's reason and its message.
"""

# ruff: noqa: N818  (the names are the API's own reasons, and read as such where they are caught)

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
    """400: the request itself is wrong."""


class Unauthorized(ApiError):
    """401: the API server does not know who we are."""


class Forbidden(ApiError):
    """403: known, and not allowed."""


class NotFound(ApiError):
    """404: the object, or its kind, is not there."""


class Conflict(ApiError):
    """409: somebody else wrote first, or a precondition does not hold. Read again and decide anew."""


class AlreadyExists(ApiError):
    """409 on create: an object of that name is there."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old. List again."""


class Invalid(ApiError):
    """422: the object does not satisfy its schema or validation."""


class TooLarge(ApiError):
    """413, or an object that the storage behind the API server does not take: it must become smaller."""


class Throttled(ApiError):
    """429, or any answer that says when to come back: nothing was done."""

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
    """5xx, or no answer at all. A write may or may not have been done."""


class LeaseExpired(ApiError):
    """Not sent: the time until which this process may write is over."""

    def __init__(self) -> None:
        super().__init__(0, "LeaseExpired", "not sent: this process no longer holds the lease")


def without_traceback(error: ApiError) -> ApiError:
    """The error as it may be kept: without the frames that it came through and all that they hold."""
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
    """The API's own form of an error (`kind: Status`)."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an HTTP answer of 400 or more stands for."""
    try:
        answer = _status_decoder.decode(body)
    except msgspec.MsgspecError:
        answer = Status(message=body[:500].decode("utf-8", "replace").strip())
    answer.code = status
    return error_from_status(answer, _seconds(headers.get("Retry-After", "")))


def error_from_status(answer: Status, retry_after: float | None = None) -> ApiError:
    """The error that a `Status` object stands for, from an answer or from a watch's ERROR event."""
    code, reason, message, details = answer.code, answer.reason, answer.message, answer.details
    reason = reason or _REASONS.get(code, "Unknown")
    if retry_after is None and details is not None and details.retry_after_seconds:
        retry_after = float(details.retry_after_seconds)
    if code == 429 or (retry_after is not None and code >= 500):
        after = 1.0 if retry_after is None else retry_after
        return Throttled(code, reason, message, retry_after=after, details=details)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, details=details)
    if code == 500 and any(words in message for words in _TOO_LARGE):
        return TooLarge(code, reason, message, details=details)
    kind = _KINDS.get(code, Unavailable if code >= 500 else ApiError)
    return kind(code, reason, message, details=details)


_status_decoder = msgspec.json.Decoder(Status)

_KINDS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
}

_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""What etcd and its client say of objects beyond 1.5 and 2 MiB, which the API server passes on as 500."""

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


def _seconds(value: str) -> float | None:
    """`Retry-After` as seconds; API servers send whole seconds, never a date."""
    try:
        return max(float(value), 0.0)
    except ValueError:
        return None
