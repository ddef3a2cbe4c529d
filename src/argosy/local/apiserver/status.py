"""Errors as Status objects, with the codes, reasons and details of Kubernetes, on which clients rely."""

from collections.abc import Sequence

from argosy.local.schema.model import Json


class StatusError(Exception):
    """An error response."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.list_metadata: Json = {}

    def body(self) -> Json:
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after(self) -> int | None:
        after = (self.details or {}).get("retryAfterSeconds")
        return after if isinstance(after, int) else None


def success(group: str, kind: str, name: str, uid: str) -> Json:
    """Return the response to a deletion of a kind that does not return the object."""
    details: Json = {"name": name, "group": group, "kind": kind, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(group, plural, name))


def page_not_found() -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, {})


def already_exists(group: str, plural: str, name: str, *, generated: bool = False) -> StatusError:
    """Return the 409 of a name in use; `generated` if the server generated the name: a retry may succeed."""
    message, details = f'{qualified(group, plural)} "{name}" already exists', _about(group, plural, name)
    if generated:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    return StatusError(409, "AlreadyExists", message, details)


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    where = f'{qualified(group, plural)} "{name}" is forbidden' if plural else "forbidden"
    return StatusError(403, "Forbidden", f"{where}: {why}", _about(group, plural, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def method_not_supported(group: str, plural: str, verb: str) -> StatusError:
    message = f'{verb} is not supported on resources of kind "{qualified(group, plural)}"'
    return StatusError(405, "MethodNotAllowed", message, _about(group, plural, ""))


def unsupported_media_type(offered: Sequence[str]) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
        offered
    )
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(offered: Sequence[str]) -> StatusError:
    message = "only the following media types are accepted: " + ", ".join(offered)
    return StatusError(406, "NotAcceptable", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def internal(message: str) -> StatusError:
    details: Json = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def too_many_requests(message: str, seconds: int, causes: list[Json] | None = None) -> StatusError:
    details: Json = {"retryAfterSeconds": seconds} if seconds else {}
    if causes:
        details["causes"] = causes
    return StatusError(429, "TooManyRequests", message, details or None)


def _about(group: str, kind: str, name: str) -> Json:
    details: Json = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}
