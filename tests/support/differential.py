"""Sends the same requests to a real kube-apiserver and to ours, and compares the responses.

A case is a list of steps: plain HTTP requests with JSON bodies, sent by a client that shares no code with our
engine. Compared are the code, the headers that a client acts on, and the body; `tests.support.normalize`
replaces what differs between any two servers (ids, times, versions). Of errors, the code, the reason and the
fields and reasons of the causes are compared; their wording only in steps with `words=True`.

A step can use an earlier response: `$made.metadata.uid` in a path or a body is that field of the response
saved as `made`, and `$ns` is the case's own namespace. A watch can stay open while later steps write:
`listen` opens it, `heard` reads events from it.
"""

import copy
import difflib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypedDict, Unpack
from urllib.parse import urlsplit

import yaml

from tests.support.field_paths import Json, dig, filled, hide
from tests.support.normalize import Normaliser, warning_fields, with_sorted_causes, without_wording
from tests.support.servers import ADMIN, Server, TokenUser

SHOWN_HEADERS = ("content-type", "warning", "retry-after", "www-authenticate", "allow", "location")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_SECONDS = 15.0
PATIENCE = 60.0
"""How long an answer may take, and what a step waits for: the judge may share its machine with much else."""
_IDLE_SECONDS = 5.0
"""How long a connection may rest before another takes its place: servers close those that rest long."""


@dataclass(frozen=True)
class Step:
    """One request. `events` makes it a watch that ends after so many events (or when the server ends it)."""

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
    """Repeat until this dotted field of the answer is there and true; only the last answer counts."""
    until_code: int = 0
    """Repeat until answered with this code."""
    shown: bool = True
    """Whether the answer is compared; some steps only prepare."""
    only: tuple[str, ...] = ()
    """Compare these dotted fields of the body only: for answers in which each server has its own things."""
    hide: tuple[str, ...] = ()
    """Dotted fields that are not compared; * stands for every item of a list or map."""
    words: bool = False
    """Whether the messages of errors and warnings are compared too."""
    live: str = ""
    """The name of a watch that stays open: this step opens it if it has a path, else it reads from it."""
    act: Callable[[Server], None] | None = None
    """Something to do to the server instead of asking it."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}" if self.path else f"heard by {self.live}"


class More(TypedDict, total=False):
    """The fields of a step that the functions below take by name."""

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


def get(path: str, **more: Unpack[More]) -> Step:
    return Step("GET", path, **more)


def post(path: str, body: Json, type: str = "application/json", **more: Unpack[More]) -> Step:
    return Step("POST", path, body, type, **more)


def put(path: str, body: Json, type: str = "application/json", **more: Unpack[More]) -> Step:
    return Step("PUT", path, body, type, **more)


def patch(path: str, body: Json, type: str = MERGE, **more: Unpack[More]) -> Step:
    return Step("PATCH", path, body, type, **more)


def apply(path: str, body: Json, manager: str = "alice", **more: Unpack[More]) -> Step:
    """Server-side apply."""
    return Step("PATCH", _with_query(path, f"fieldManager={manager}"), body, APPLY, **more)


def delete(path: str, body: Json = None, **more: Unpack[More]) -> Step:
    return Step("DELETE", path, body, **more)


def watch(path: str, events: int, last: str = "", **more: Unpack[More]) -> Step:
    return Step("GET", _with_query(path, "watch=1"), events=events, last=last, **more)


def listen(name: str, path: str, **more: Unpack[More]) -> Step:
    """Open a watch and leave it open."""
    return Step("GET", _with_query(path, "watch=1"), live=name, **more)


def heard(name: str, events: int, **more: Unpack[More]) -> Step:
    """The next so many events of an open watch."""
    return Step("", "", live=name, events=events, **more)


def act(what: Callable[[Server], None]) -> Step:
    """Do something to the server."""
    return Step("", "", act=what)


def _with_query(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


def difference(judge: Server, ours: Server, namespace: str, steps: Sequence[Step]) -> str:
    """Send the steps to both servers: a diff from the judge's answers to ours, empty when equal."""
    want, got = (transcript(server, namespace, steps) for server in (judge, ours))
    return "" if want == got else told_apart(steps, want, got)


def told_apart(steps: Sequence[Step], want: Sequence[Json], got: Sequence[Json]) -> str:
    """A diff from the judge's answers to ours."""
    before, after = _readable(steps, want), _readable(steps, got)
    return "\n".join(difflib.unified_diff(before, after, "kubernetes", "local", lineterm="", n=6))


def transcript(server: Server, namespace: str, steps: Sequence[Step]) -> list[Json]:
    """A normalised answer for each step that is shown, in a namespace made for it."""
    with Caller(server) as caller:
        return replay(caller, namespace, steps)


def replay(
    caller: "Caller", namespace: str, steps: Sequence[Step], prepared: Sequence[Step] | None = None
) -> list[Json]:
    """The same over connections that stay open: for many transcripts one after the other."""
    saved: dict[str, Json] = {"ns": namespace}
    normaliser = Normaliser(caller.server.url)
    answers: list[Json] = []
    for step in [*(preparation(namespace) if prepared is None else prepared), *steps]:
        if step.act is not None:
            step.act(caller.server)
            continue
        asked = replace(
            step,
            path=str(filled(step.path, saved)),
            body=filled(step.body, saved),
            headers={name: str(filled(value, saved)) for name, value in step.headers.items()},
        )
        if isinstance(prefix := dig(asked.body, "metadata.generateName"), str) and prefix:
            normaliser.expect(prefix)
        answer = caller.send(asked)
        if step.save:
            saved[step.save] = answer.body
        if step.shown:
            answers.append(_shown(step, answer, normaliser))
    return answers


def preparation(namespace: str) -> tuple[Step, ...]:
    """A namespace with a ServiceAccount, which pods need and a controller would make.

    Our server makes that and a ConfigMap by itself; both go, so that the two servers begin alike.
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
    """A server closed a connection that it had just been asked over, without an answer."""


class Caller:
    """Sends steps to one server over connections that stay open, one for each user.

    Nothing is sent twice by itself: what a server has read it may have acted on.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.patience = PATIENCE
        """How long to repeat a step whose condition does not hold."""
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
        """Send one step; repeated until its condition holds, if it has one."""
        if step.live:
            return self._listen(step) if step.path else self._heard(step)
        deadline = time.monotonic() + self.patience
        while True:
            answer = self._watch(step) if step.events is not None else self._request(step)
            if _is_early(answer) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if step.until_code in (0, answer.code) and (not step.until or dig(answer.body, step.until)):
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.server.name}: {step}: not as awaited in time: {answer}")
            time.sleep(0.05)

    def _request(self, step: Step) -> Answer:
        connection = self._connection(step.user.token if step.user else "")
        try:
            response = self._ask(connection, step)
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

    def _listen(self, step: Step) -> Answer:
        connection = self._connect()
        response = self._ask(connection, step)
        self._open[step.live] = (connection, response)
        refused = response.status != http.client.OK
        return Answer(response.status, _headers(response), _decoded(response.read()) if refused else None)

    def _heard(self, step: Step) -> Answer:
        _, response = self._open[step.live]
        return Answer(response.status, {}, _events(response, step))

    def _watch(self, step: Step) -> Answer:
        connection = self._connect()
        try:
            response = self._ask(connection, step)
            if response.status != http.client.OK:
                return Answer(response.status, _headers(response), _decoded(response.read()))
            return Answer(response.status, _headers(response), _events(response, step))
        finally:
            connection.close()

    def _connection(self, key: str) -> http.client.HTTPSConnection:
        """The connection of a user, made anew when it was not used for long."""
        now = time.monotonic()
        connection = self._connections.setdefault(key, self._connect(PATIENCE))
        if now - self._used.get(key, now) > _IDLE_SECONDS:
            connection.close()
        self._used[key] = now
        return connection

    def _connect(self, patience: float = _SECONDS) -> http.client.HTTPSConnection:
        host = urlsplit(self.server.url).netloc
        return http.client.HTTPSConnection(host, context=self._context, timeout=patience)

    def _ask(self, connection: http.client.HTTPSConnection, step: Step) -> http.client.HTTPResponse:
        headers = {"Accept": step.accept, "User-Agent": "judge", **step.headers}
        if step.user is not None:
            headers["Authorization"] = f"Bearer {step.user.token}"
        content = step.body.encode() if isinstance(step.body, str) else None
        if step.body is not None and content is None:
            content = json.dumps(step.body, separators=(",", ":")).encode()
        if content is not None and step.type:
            headers["Content-Type"] = step.type
        connection.request(step.method, step.path, content, headers)
        return connection.getresponse()


def _is_early(answer: Answer) -> bool:
    """Whether the judge is still about to serve a kind that was just defined, or has just been changed."""
    return answer.code == HTTPStatus.TOO_MANY_REQUESTS and "initializing" in str(dig(answer.body, "message"))


def _events(response: http.client.HTTPResponse, step: Step) -> list[Json]:
    """So many lines of a watch. Fewer are told as such, since the other server may send them."""
    events: list[Json] = []
    try:
        while len(events) < (step.events or 0):
            line = response.readline()
            if not line:
                events.append("(the server ended the watch)")
                break
            if _is_by_the_way(line) and step.last != "BOOKMARK":
                continue
            events.append(_decoded(line))
            if step.last and step.last in _names(events[-1]):
                break
    except (TimeoutError, http.client.IncompleteRead):
        events.append(f"(no further event within {_SECONDS:.0f} s)")
    return events


def _is_by_the_way(line: bytes) -> bool:
    """A bookmark that a server may send whenever it likes, not the one behind what was there at first."""
    return line.startswith(b'{"type":"BOOKMARK"') and b"k8s.io/initial-events-end" not in line


def _names(event: Json) -> tuple[Json, ...]:
    """What an event is called by: its type, the name of its object, also where that is a row of a table."""
    places = ("type", "object.metadata.name", "object.rows.0.object.metadata.name")
    return tuple(dig(event, place) for place in places)


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
    if "warning" in headers and not step.words:
        headers["warning"] = warning_fields(answer.headers["warning"])
    return {"code": answer.code, "headers": normaliser.normal(headers), "body": body}


def _readable(steps: Sequence[Step], answers: Sequence[Json]) -> list[str]:
    lines: list[str] = []
    shown = [step for step in steps if step.shown and step.act is None]
    for step, answer in zip(shown, answers, strict=True):
        lines.append(f"### {step}")
        lines.extend(yaml.safe_dump(answer, sort_keys=True, width=1000).splitlines())
    return lines
