"""Answers as exact bytes, in whatever pieces they come."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.wire.errors import IncompleteResponseError, ProtocolError
from argosy.wire.response import LARGEST_HEAD, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"


class Case(NamedTuple):
    data: bytes
    body: bytes = b""
    status: int = 200
    keep_alive: bool = True
    bodiless: bool = False
    ended: bool = False
    """The peer closes after it."""


WHOLE = {
    "a body of a declared length": Case(OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "a body of no length at all": Case(OK + b"Content-Length: 0\r\n\r\n"),
    "a body in chunks": Case(
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"
    ),
    "chunks with extensions, and trailers after them": Case(
        OK + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"hello"
    ),
    "a body that ends with the connection": Case(OK + b"\r\nhello", b"hello", keep_alive=False, ended=True),
    "an answer of HTTP/1.0": Case(
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", keep_alive=False
    ),
    "a connection that is to be closed": Case(
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi", b"hi", keep_alive=False
    ),
    "204 has no body": Case(b"HTTP/1.1 204 No Content\r\n\r\n", status=204),
    "304 has no body, whatever length it tells": Case(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status=304
    ),
    "an answer to HEAD has no body, whatever length it tells": Case(
        OK + b"Content-Length: 5\r\n\r\n", bodiless=True
    ),
    "an answer to HEAD in chunks has none": Case(OK + b"Transfer-Encoding: chunked\r\n\r\n", bodiless=True),
    "interim answers come before the answer": Case(
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 103 Early Hints\r\nX-Sum: wrong\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi",
        b"hi",
    ),
    "an error is an answer like any": Case(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nwhy", b"why", 503
    ),
    "a line end before the answer": Case(b"\r\n" + OK + b"Content-Length: 2\r\n\r\nhi", b"hi"),
}


def read(case: Case, *cuts: int) -> ResponseParser:
    answer = ResponseParser(bodiless=case.bodiless)
    places = [0, *sorted(cuts), len(case.data)]
    for start, stop in pairwise(places):
        if start != stop:
            assert not answer.done
            answer.feed(case.data[start:stop])
    if case.ended:
        assert not answer.done
        answer.end()
    return answer


def check(case: Case, answer: ResponseParser) -> None:
    assert (answer.done, answer.status, answer.keep_alive) == (True, case.status, case.keep_alive)
    assert answer.take() == case.body
    assert "x-sum" not in answer.headers


@pytest.mark.parametrize("sentence", WHOLE)
def test_an_answer_is_read_whole_wherever_it_is_cut_in_two(sentence: str) -> None:
    case = WHOLE[sentence]
    for cut in range(len(case.data)):
        check(case, read(case, cut))


@pytest.mark.parametrize("sentence", WHOLE)
def test_an_answer_is_read_byte_by_byte(sentence: str) -> None:
    case = WHOLE[sentence]
    check(case, read(case, *range(1, len(case.data))))


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_an_answer_is_read_in_any_pieces(sentence: str, data: st.DataObject) -> None:
    case = WHOLE[sentence]
    cuts = data.draw(st.sets(st.integers(1, len(case.data) - 1)))
    check(case, read(case, *cuts))


CUT_SHORT = {
    "in the head": OK + b"Content-Le",
    "in a body of a declared length": OK + b"Content-Length: 5\r\n\r\nhell",
    "in a chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "between chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "after an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("sentence", CUT_SHORT)
def test_an_answer_that_ends_too_early_is_cut_off(sentence: str) -> None:
    answer = ResponseParser()
    answer.feed(CUT_SHORT[sentence])
    with pytest.raises(IncompleteResponseError):
        answer.end()
    assert not answer.done


GARBLED = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a status that is none": b"HTTP/1.1 abc\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length beside chunks": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a chunk of no number": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "another protocol that nobody asked for": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
}


@pytest.mark.parametrize("sentence", GARBLED)
def test_what_is_not_http_is_garbled(sentence: str) -> None:
    answer = ResponseParser()
    with pytest.raises(ProtocolError):
        answer.feed(GARBLED[sentence])
    assert not answer.done


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 ", b"O" * 1000),
    "one header": (OK + b"X: ", b"x" * 1000),
    "many headers": (OK, b"X: x\r\n" * 100),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
    "a chunk's extension": (OK + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x" * 1000),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: x\r\n" * 100),
}


@pytest.mark.parametrize("sentence", ENDLESS)
def test_nothing_but_the_body_may_go_on_for_ever(sentence: str) -> None:
    begin, more = ENDLESS[sentence]
    answer = ResponseParser()
    answer.feed(begin) if begin else None
    with pytest.raises(ProtocolError, match="without any body"):
        for _ in range(2 * LARGEST_HEAD // len(more)):
            answer.feed(more)


def test_a_long_body_may_go_on() -> None:
    answer = ResponseParser()
    answer.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(2 * LARGEST_HEAD // 100):
        answer.feed(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert answer.take() == b"x" * 100


@pytest.mark.parametrize("size", [10, 11])
def test_a_body_beyond_the_limit_is_garbled(size: int) -> None:
    data = OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    answer = ResponseParser(limit=10)
    if size == 10:
        answer.feed(data)
        assert answer.done
    else:
        with pytest.raises(ProtocolError, match="larger than 10"):
            answer.feed(data)
        assert not answer.done


EXCESS = {
    "another answer": Case(OK + b"Content-Length: 2\r\n\r\nhi" + OK, b"hi"),
    "rubbish": Case(OK + b"Content-Length: 2\r\n\r\nhi\x00\x00", b"hi"),
    "data although it was to be the last": Case(
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhimore", b"hi"
    ),
    "a body for HEAD": Case(OK + b"Content-Length: 5\r\n\r\nhello", bodiless=True),
}


@pytest.mark.parametrize("sentence", EXCESS)
def test_what_comes_after_an_answer_spoils_the_connection_and_not_the_answer(sentence: str) -> None:
    case = EXCESS[sentence]
    answer = ResponseParser(bodiless=case.bodiless)
    answer.feed(case.data)
    assert answer.done
    assert answer.take() == case.body
    assert not answer.keep_alive


def test_headers_are_found_in_any_case_and_repeated_ones_joined() -> None:
    answer = ResponseParser()
    answer.feed(OK + b"Retry-After: 5\r\nWARNING: a\r\nwarning: b\r\nX-Empty:\r\n\r\n")
    headers = answer.headers
    assert headers["retry-after"] == headers["RETRY-AFTER"] == "5"
    assert headers["Warning"] == "a, b"
    assert headers["x-empty"] == ""
    assert headers.get("nothing", "default") == "default"
    assert list(headers) == ["retry-after", "warning", "x-empty"]
    assert len(headers) == 3


def test_an_upgrade_keeps_what_came_after_it() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    answer = ResponseParser(upgrade=True)
    answer.feed(head + b"\x81\x02hi")
    assert (answer.done, answer.status, answer.rest) == (True, 101, b"\x81\x02hi")
