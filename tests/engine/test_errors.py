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
    "another writer was first": Case(409, errors.Conflict, "Conflict"),
    "the name is taken": Case(409, errors.AlreadyExists, "AlreadyExists"),
    "the object is not there": Case(404, errors.NotFound, "NotFound"),
    "the version is too old": Case(410, errors.Gone, "Expired"),
    "the object breaks its schema": Case(422, errors.Invalid, "Invalid"),
    "the request is wrong": Case(400, errors.BadRequest, "BadRequest"),
    "nobody knows us": Case(401, errors.Unauthorized),
    "we may not": Case(403, errors.Forbidden, "Forbidden"),
    "too many requests": Case(429, errors.Throttled, headers={"Retry-After": "3"}, want_retry_after=3),
    "too many requests, without saying when": Case(429, errors.Throttled, want_retry_after=1),
    "the server says when to come back": Case(
        503, errors.Throttled, headers={"Retry-After": "2"}, want_retry_after=2
    ),
    "the server is broken": Case(500, errors.Unavailable, "InternalError"),
    "a code nobody treats specially": Case(415, errors.ApiError),
}


@pytest.mark.parametrize("sentence", CASES)
def test_an_answer_becomes_the_error_that_says_what_to_do(sentence: str) -> None:
    case = CASES[sentence]
    body = msgspec.json.encode({"kind": "Status", "reason": case.reason, "message": "because"})
    error = errors.error_from_response(case.status, case.headers, body)
    assert type(error) is case.want
    assert (error.status, error.message) == (case.status, "because")
    assert error.reason
    if isinstance(error, errors.Throttled):
        assert error.retry_after == case.want_retry_after


def test_an_answer_that_is_no_status_keeps_its_text() -> None:
    error = errors.error_from_response(502, {}, b"<html>bad gateway</html>")
    assert isinstance(error, errors.Unavailable)
    assert "bad gateway" in str(error)


def test_a_name_that_is_taken_is_not_a_conflict() -> None:
    assert not issubclass(errors.AlreadyExists, errors.Conflict)
