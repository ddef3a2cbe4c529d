from dataclasses import dataclass, field

import msgspec
import pytest

from argosy.engine import errors


@dataclass
class Case:
    status: int
    want: type[errors.ApiError]
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    want_retry_after: float | None = None


CASES = {
    "409 Conflict: Conflict": Case(409, errors.Conflict, "Conflict"),
    "409 AlreadyExists: AlreadyExists": Case(409, errors.AlreadyExists, "AlreadyExists"),
    "404: NotFound": Case(404, errors.NotFound, "NotFound"),
    "410: Gone": Case(410, errors.Gone, "Expired"),
    "422: Invalid": Case(422, errors.Invalid, "Invalid"),
    "400: BadRequest": Case(400, errors.BadRequest, "BadRequest"),
    "401: Unauthorized": Case(401, errors.Unauthorized),
    "403: Forbidden": Case(403, errors.Forbidden, "Forbidden"),
    "429 with Retry-After: Throttled for that time": Case(
        429, errors.Throttled, headers={"Retry-After": "3"}, want_retry_after=3
    ),
    "429 without Retry-After: Throttled for a second": Case(429, errors.Throttled, want_retry_after=1),
    "503 with Retry-After: Throttled for that time": Case(
        503, errors.Throttled, headers={"Retry-After": "2"}, want_retry_after=2
    ),
    "500: Unavailable": Case(500, errors.Unavailable, "InternalError"),
    "other status: ApiError": Case(415, errors.ApiError),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_response_becomes_a_typed_error(case: Case) -> None:
    body = msgspec.json.encode({"kind": "Status", "reason": case.reason, "message": "because"})
    error = errors.error_from_response(case.status, case.headers, body)
    assert type(error) is case.want
    assert (error.status, error.message) == (case.status, "because")
    assert error.reason
    if isinstance(error, errors.Throttled):
        assert error.retry_after == case.want_retry_after


def test_response_that_is_not_a_status_keeps_its_text() -> None:
    error = errors.error_from_response(502, {}, b"<html>bad gateway</html>")
    assert isinstance(error, errors.Unavailable)
    assert "bad gateway" in str(error)


def test_already_exists_is_not_a_conflict() -> None:
    assert not issubclass(errors.AlreadyExists, errors.Conflict)
