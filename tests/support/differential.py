"""Sends the same requests to a real kube-apiserver and to ours, and compares the responses.

A case is a list of steps: plain HTTP requests with JSON bodies, sent by a client that shares no code with our
engine. Compared are the code, the headers that a client acts on, and the body; `tests.support.normalize`
replaces what differs between any two servers (ids, times, versions). Of errors, the code, the reason and the
fields and reasons of the causes are compared; their wording only in steps with `words=True`.

A step can use an earlier response: `$pod.metadata.uid` in a path or a body is that field of the response
saved as `pod`, and `$ns` is the namespace of the case. A watch can stay open while later steps write:
`open_watch` opens it, `read_watch` reads events from it.
"""

import copy
import difflib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypedDict, Unpack
from urllib.parse import urlsplit

import yaml

from tests.support.field_paths import Json, dig, filled, hide
from tests.support.normalize import (
    Normaliser,
    warning_fields,
    with_sorted_causes,
    without_advice,
    without_wording,
)
from tests.support.servers import ADMIN, Server, TokenUser

SHOWN_HEADERS = ("content-type", "warning", "retry-after", "www-authenticate", "allow", "location")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_SECONDS = 15.0
TIMEOUT_SECONDS = 60.0
"""For a response, and for the condition of a step: the machine may be busy."""
_IDLE_SECONDS = 5.0
"""A connection that was idle for longer is replaced, because servers close idle connections."""


@dataclass(frozen=True)
class Step:
    """One request. With `events` it is a watch that ends after this many events, or with the connection."""

    method: str
    path: str
    body: Json = None
    type: str = "application/json"
    accept: str = "application/json"
    user: TokenUser | None = ADMIN
    headers: Mapping[str, str] = field(default_factory=dict)
    save: str = ""
    events: int | None = None
    last: str = ""
    """The watch ends with the first event of this type or about an object of this name."""
    until: str = ""
    """Repeat until this dotted field of the response is true; only the last response is compared."""
    until_code: int = 0
    """Repeat until the response has this code."""
    shown: bool = True
    """Whether the response is compared; some steps only prepare the others."""
    only: tuple[str, ...] = ()
    """Compare only these dotted fields of the body, if the others differ between any two servers."""
    hide: tuple[str, ...] = ()
    """Dotted fields that are not compared; * stands for every item of a list or map."""
    words: bool = False
    """Whether the messages of errors and warnings are compared too."""
    live: str = ""
    """The name of a watch that stays open: this step opens it if it has a path, else it reads from it."""
    act: Callable[[Server], None] | None = None
    """An action on the server instead of a request."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}" if self.path else f"events of {self.live}"


class StepOptions(TypedDict, total=False):
    """The fields of a step that the functions below accept as keyword arguments."""

    accept: str
    user: TokenUser | None
    headers: Mapping[str, str]
    save: str
    until: str
    until_code: int
    shown: bool
    only: tuple[str, ...]
    hide: tuple[str, ...]
    words: bool


def get(path: str, **more: Unpack[StepOptions]) -> Step:
    return Step("GET", path, **more)


def post(path: str, body: Json, type: str = "application/json", **more: Unpack[StepOptions]) -> Step:
    return Step("POST", path, body, type, **more)


def put(path: str, body: Json, type: str = "application/json", **more: Unpack[StepOptions]) -> Step:
    return Step("PUT", path, body, type, **more)


def patch(path: str, body: Json, type: str = MERGE, **more: Unpack[StepOptions]) -> Step:
    return Step("PATCH", path, body, type, **more)


def apply(path: str, body: Json, manager: str = "alice", **more: Unpack[StepOptions]) -> Step:
    """Server-side apply."""
    return Step("PATCH", _with_query(path, f"fieldManager={manager}"), body, APPLY, **more)


def delete(path: str, body: Json = None, **more: Unpack[StepOptions]) -> Step:
    return Step("DELETE", path, body, **more)


def watch(path: str, events: int, last: str = "", **more: Unpack[StepOptions]) -> Step:
    return Step("GET", _with_query(path, "watch=1"), events=events, last=last, **more)


def open_watch(name: str, path: str, **more: Unpack[StepOptions]) -> Step:
    """Open a watch that stays open."""
    return Step("GET", _with_query(path, "watch=1"), live=name, **more)


def read_watch(name: str, events: int, **more: Unpack[StepOptions]) -> Step:
    """Read this many events of an open watch."""
    return Step("", "", live=name, events=events, **more)


def act(what: Callable[[Server], None]) -> Step:
    """Run an action on the server."""
    return Step("", "", act=what)


def _with_query(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


def difference(reference: Server, ours: Server, namespace: str, steps: Sequence[Step]) -> str:
    """Send the steps to both servers at the same time; returns a diff of the responses, empty if equal."""
    with ThreadPoolExecutor(2) as pool:
        want, got = pool.map(lambda server: transcript(server, namespace, steps), (reference, ours))
    return "" if want == got else transcript_diff(steps, want, got)


def transcript_diff(steps: Sequence[Step], want: Sequence[Json], got: Sequence[Json]) -> str:
    """A diff from the responses of the reference to ours."""
    before, after = _readable(steps, want), _readable(steps, got)
    return "\n".join(difflib.unified_diff(before, after, "kubernetes", "local", lineterm="", n=6))


def transcript(server: Server, namespace: str, steps: Sequence[Step]) -> list[Json]:
    """Send the steps in a new namespace; returns the normalised response of each compared step."""
    with Caller(server) as caller:
        return replay(caller, namespace, steps)


def replay(
    caller: "Caller", namespace: str, steps: Sequence[Step], prepared: Sequence[Step] | None = None
) -> list[Json]:
    """Like `transcript`, over open connections, for many transcripts one after the other."""
    saved: dict[str, Json] = {"ns": namespace}
    normaliser = Normaliser(caller.server.url)
    answers: list[Json] = []
    for step in [*(preparation(namespace) if prepared is None else prepared), *steps]:
        if step.act is not None:
            step.act(caller.server)
            continue
        filled_step = replace(
            step,
            path=str(filled(step.path, saved)),
            body=filled(step.body, saved),
            headers={name: str(filled(value, saved)) for name, value in step.headers.items()},
        )
        if isinstance(prefix := dig(filled_step.body, "metadata.generateName"), str) and prefix:
            normaliser.expect(prefix)
        answer = caller.send(filled_step)
        if step.save:
            saved[step.save] = answer.body
        if step.shown:
            answers.append(_shown(step, answer, normaliser))
    return answers


def preparation(namespace: str) -> tuple[Step, ...]:
    """Create a namespace with a ServiceAccount, which pods need and a controller would create.

    Our server creates that and a ConfigMap itself; both are deleted, so that both servers start alike.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    return (
        post("/api/v1/namespaces", space, shown=False),
        delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", shown=False),
        post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account, shown=False),
        delete(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt", shown=False),
    )


@dataclass(frozen=True)
class Answer:
    code: int
    headers: Mapping[str, str]
    body: Json


class ClosedError(Exception):
    """A server closed the connection instead of responding."""


class Caller:
    """Sends steps to one server over open connections, one per user.

    No request is retried by itself: the server may have executed it.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.patience = TIMEOUT_SECONDS
        """Seconds for which a step is repeated until its condition is true."""
        self._context = ssl.create_default_context(cafile=str(server.ca_file))
        self._connections: dict[str, http.client.HTTPSConnection] = {}
        self._used: dict[str, float] = {}
        self._open: dict[str, tuple[http.client.HTTPSConnection, http.client.HTTPResponse]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        for connection, response in self._open.values():
            response.close()
            connection.close()

    def send(self, step: Step) -> Answer:
        """Send a step, and repeat it until its condition is true, if it has one."""
        if step.live:
            return self._open_watch(step) if step.path else self._read_watch(step)
        deadline = time.monotonic() + self.patience
        while True:
            answer = self._watch(step) if step.events is not None else self._request(step)
            if _is_initializing(answer) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if step.until_code in (0, answer.code) and (not step.until or dig(answer.body, step.until)):
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.server.name}: {step}: timed out, last response: {answer}")
            time.sleep(0.05)

    def _request(self, step: Step) -> Answer:
        connection = self._connection(step.user.token if step.user else "")
        try:
            response = self._send_request(connection, step)
        except TimeoutError:
            connection.close()
            raise
        except ConnectionError as error:
            connection.close()
            why = f"{self.server.name} closed the connection instead of answering {step}"
            raise ClosedError(why) from error
        content = response.read()
        if response.will_close:
            connection.close()
        shown = _headers(response)
        is_yaml = shown.get("content-type", "").startswith("application/yaml")
        body = yaml.load(content, yaml.BaseLoader) if is_yaml else _decoded(content)
        return Answer(response.status, shown, body)

    def _open_watch(self, step: Step) -> Answer:
        connection = self._connect()
        response = self._send_request(connection, step)
        self._open[step.live] = (connection, response)
        refused = response.status != http.client.OK
        return Answer(response.status, _headers(response), _decoded(response.read()) if refused else None)

    def _read_watch(self, step: Step) -> Answer:
        _, response = self._open[step.live]
        return Answer(response.status, {}, _events(response, step))

    def _watch(self, step: Step) -> Answer:
        connection = self._connect()
        try:
            response = self._send_request(connection, step)
            if response.status != http.client.OK:
                return Answer(response.status, _headers(response), _decoded(response.read()))
            return Answer(response.status, _headers(response), _events(response, step))
        finally:
            connection.close()

    def _connection(self, key: str) -> http.client.HTTPSConnection:
        """The connection of a user, which is closed first if it was idle for long."""
        now = time.monotonic()
        connection = self._connections.setdefault(key, self._connect(TIMEOUT_SECONDS))
        if now - self._used.get(key, now) > _IDLE_SECONDS:
            connection.close()
        self._used[key] = now
        return connection

    def _connect(self, patience: float = _SECONDS) -> http.client.HTTPSConnection:
        host = urlsplit(self.server.url).netloc
        return http.client.HTTPSConnection(host, context=self._context, timeout=patience)

    def _send_request(self, connection: http.client.HTTPSConnection, step: Step) -> http.client.HTTPResponse:
        headers = {"Accept": step.accept, "User-Agent": "differential-test", **step.headers}
        if step.user is not None:
            headers["Authorization"] = f"Bearer {step.user.token}"
        content = step.body.encode() if isinstance(step.body, str) else None
        if step.body is not None and content is None:
            content = json.dumps(step.body, separators=(",", ":")).encode()
        if content is not None and step.type:
            headers["Content-Type"] = step.type
        connection.request(step.method, step.path, content, headers)
        return connection.getresponse()


def _is_initializing(answer: Answer) -> bool:
    """True if kube-apiserver does not serve a new or changed kind yet."""
    return answer.code == HTTPStatus.TOO_MANY_REQUESTS and "initializing" in str(dig(answer.body, "message"))


def _events(response: http.client.HTTPResponse, step: Step) -> list[Json]:
    """Read this many events; a watch that ends early is shown, since the other server may send more."""
    events: list[Json] = []
    try:
        while len(events) < (step.events or 0):
            line = response.readline()
            if not line:
                events.append("(the server ended the watch)")
                break
            if _is_periodic_bookmark(line) and step.last != "BOOKMARK":
                continue
            events.append(_decoded(line))
            if step.last and step.last in _event_names(events[-1]):
                break
    except (TimeoutError, http.client.IncompleteRead):
        events.append(f"(no further event within {_SECONDS:.0f} s)")
    return events


def _is_periodic_bookmark(line: bytes) -> bool:
    """True for a periodic bookmark, but not for the one that ends the initial events."""
    return line.startswith(b'{"type":"BOOKMARK"') and b"k8s.io/initial-events-end" not in line


def _event_names(event: Json) -> tuple[Json, ...]:
    """The type of an event and the name of its object, also in a row of a Table."""
    paths = ("type", "object.metadata.name", "object.rows.0.object.metadata.name")
    return tuple(dig(event, path) for path in paths)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name in SHOWN_HEADERS:
        if values := response.headers.get_all(name):
            shown[name] = " | ".join(values)
    return shown


def _decoded(content: bytes) -> Json:
    text = content.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(step: Step, answer: Answer, normaliser: Normaliser) -> Json:
    body = copy.deepcopy(answer.body) if step.hide else answer.body
    for path in step.hide:
        hide(body, path.split("."))
    body = normaliser.normal(body)
    body = with_sorted_causes(body) if step.words and isinstance(body, dict) else without_wording(body)
    if step.only and 200 <= answer.code < 300:
        body = {path: dig(body, path) for path in step.only}
    headers: dict[str, object] = dict(answer.headers)
    if warning := without_advice(str(headers.pop("warning", ""))):
        headers["warning"] = warning if step.words else warning_fields(warning)
    return {"code": answer.code, "headers": normaliser.normal(headers), "body": body}


def _readable(steps: Sequence[Step], answers: Sequence[Json]) -> list[str]:
    lines: list[str] = []
    shown = [step for step in steps if step.shown and step.act is None]
    for step, answer in zip(shown, answers, strict=True):
        lines.append(f"### {step}")
        lines.extend(yaml.safe_dump(answer, sort_keys=True, width=1000).splitlines())
    return lines
