"""Responses are parsed from exact bytes, in whatever pieces they arrive."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.wire.errors import IncompleteResponseError, ProtocolError
from argosy.wire.response import MAX_OVERHEAD_BYTES, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"


class Case(NamedTuple):
    data: bytes
    body: bytes = b""
    status: int = 200
    keep_alive: bool = True
    bodiless: bool = False
    closed: bool = False
    """Whether the peer closes the connection after it."""


WHOLE = {
    "body with Content-Length": Case(OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "Content-Length 0: empty body": Case(OK + b"Content-Length: 0\r\n\r\n"),
    "chunked body": Case(
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"
    ),
    "chunks with extensions and trailers: ignored": Case(
        OK + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"hello"
    ),
    "no length: the body ends with the connection": Case(
        OK + b"\r\nhello", b"hello", keep_alive=False, closed=True
    ),
    "HTTP/1.0: connection not kept alive": Case(
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", keep_alive=False
    ),
    "Connection: close: connection not kept alive": Case(
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi", b"hi", keep_alive=False
    ),
    "status 204: no body": Case(b"HTTP/1.1 204 No Content\r\n\r\n", status=204),
    "status 304 with Content-Length: no body": Case(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status=304
    ),
    "response to HEAD with Content-Length: no body": Case(OK + b"Content-Length: 5\r\n\r\n", bodiless=True),
    "response to HEAD with chunked encoding: no body": Case(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", bodiless=True
    ),
    "interim 1xx responses: skipped": Case(
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 103 Early Hints\r\nX-Sum: wrong\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    "status 503: body is read": Case(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nwhy", b"why", 503
    ),
    "empty line before the response: ignored": Case(b"\r\n" + OK + b"Content-Length: 2\r\n\r\nhi", b"hi"),
}


def read(case: Case, *cuts: int) -> ResponseParser:
    response = ResponseParser(bodiless=case.bodiless)
    bounds = [0, *sorted(cuts), len(case.data)]
    for start, stop in pairwise(bounds):
        if start != stop:
            assert not response.done
            response.feed(case.data[start:stop])
    if case.closed:
        assert not response.done
        response.end()
    return response


def check(case: Case, response: ResponseParser) -> None:
    assert (response.done, response.status, response.keep_alive) == (True, case.status, case.keep_alive)
    assert response.take() == case.body
    assert "x-sum" not in response.headers


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE)
def test_a_response_split_in_two_is_parsed(case: Case) -> None:
    for cut in range(len(case.data)):
        check(case, read(case, cut))


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE)
def test_a_response_is_parsed_byte_by_byte(case: Case) -> None:
    check(case, read(case, *range(1, len(case.data))))


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_a_response_is_parsed_in_any_pieces(key: str, data: st.DataObject) -> None:
    case = WHOLE[key]
    cuts = data.draw(st.sets(st.integers(1, len(case.data) - 1)))
    check(case, read(case, *cuts))


TRUNCATED = {
    "in the head: incomplete": OK + b"Content-Le",
    "in a body with Content-Length: incomplete": OK + b"Content-Length: 5\r\n\r\nhell",
    "in a chunk: incomplete": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "between chunks: incomplete": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "after an interim response: incomplete": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("data", TRUNCATED.values(), ids=TRUNCATED)
def test_a_connection_that_closes_too_early_is_an_error(data: bytes) -> None:
    response = ResponseParser()
    response.feed(data)
    with pytest.raises(IncompleteResponseError):
        response.end()
    assert not response.done


INVALID = {
    "SSH instead of HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "status that is not a number": b"HTTP/1.1 abc\r\n\r\n",
    "two Content-Length headers": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "Content-Length and Transfer-Encoding": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunk size that is not a number": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "status 101 without a request for it": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_an_invalid_response_is_a_protocol_error(data: bytes) -> None:
    response = ResponseParser()
    with pytest.raises(ProtocolError):
        response.feed(data)
    assert not response.done


ENDLESS = {
    "endless status line": (b"HTTP/1.1 200 ", b"O" * 1000),
    "endless header": (OK + b"X: ", b"x" * 1000),
    "endless headers": (OK, b"X: x\r\n" * 100),
    "endless interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
    "endless chunk extension": (OK + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x" * 1000),
    "endless trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: x\r\n" * 100),
}


@pytest.mark.parametrize("key", ENDLESS)
def test_everything_but_the_body_is_limited(key: str) -> None:
    start, more = ENDLESS[key]
    response = ResponseParser()
    response.feed(start) if start else None
    with pytest.raises(ProtocolError, match="outside its body"):
        for _ in range(2 * MAX_OVERHEAD_BYTES // len(more)):
            response.feed(more)


def test_a_long_body_is_not_limited_by_default() -> None:
    response = ResponseParser()
    response.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(2 * MAX_OVERHEAD_BYTES // 100):
        response.feed(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert response.take() == b"x" * 100


@pytest.mark.parametrize("size", [10, 11])
def test_a_body_larger_than_the_limit_is_a_protocol_error(size: int) -> None:
    data = OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    response = ResponseParser(limit=10)
    if size == 10:
        response.feed(data)
        assert response.done
    else:
        with pytest.raises(ProtocolError, match="larger than 10"):
            response.feed(data)
        assert not response.done


EXCESS = {
    "second response": Case(OK + b"Content-Length: 2\r\n\r\nhi" + OK, b"hi"),
    "invalid bytes": Case(OK + b"Content-Length: 2\r\n\r\nhi\x00\x00", b"hi"),
    "data after Connection: close": Case(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhimore", b"hi"),
    "body of a response to HEAD": Case(OK + b"Content-Length: 5\r\n\r\nhello", bodiless=True),
}


@pytest.mark.parametrize("case", EXCESS.values(), ids=EXCESS)
def test_bytes_after_a_response_make_only_the_connection_unusable(case: Case) -> None:
    response = ResponseParser(bodiless=case.bodiless)
    response.feed(case.data)
    assert response.done
    assert response.take() == case.body
    assert not response.keep_alive


def test_header_names_ignore_case_and_repeated_headers_are_joined() -> None:
    response = ResponseParser()
    response.feed(OK + b"Retry-After: 5\r\nWARNING: a\r\nwarning: b\r\nX-Empty:\r\n\r\n")
    headers = response.headers
    assert headers["retry-after"] == headers["RETRY-AFTER"] == "5"
    assert headers["Warning"] == "a, b"
    assert headers["x-empty"] == ""
    assert headers.get("nothing", "default") == "default"
    assert list(headers) == ["retry-after", "warning", "x-empty"]
    assert len(headers) == 3


def test_an_upgrade_keeps_the_bytes_after_it() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    response = ResponseParser(upgrade=True)
    response.feed(head + b"\x81\x02hi")
    assert (response.done, response.status, response.upgrade_data) == (True, 101, b"\x81\x02hi")
