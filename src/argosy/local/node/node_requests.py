"""Answers requests of `argosy nodes` and `argosy rehearse`, which the API server forwards.

| request | effect |
|---|---|
| `GET nodes` | returns the nodes, by name, and how they were changed |
| `POST nodes?name=&pretendGpus=` | adds a node |
| `DELETE nodes/NAME` | removes a node |
| `POST nodes/NAME/silence`, `…/resume` | cuts a node off, makes it what it was |
| `POST nodes/NAME/stop?for=SECONDS` | switches a node off, and on again |
| `POST nodes/NAME/reclaim?in=SECONDS&backAfter=SECONDS` | announces the end of a node |
| `POST pods/NAMESPACE/NAME/kill?signal=NUMBER` | sends a signal to the processes of a pod |
"""

import math
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from argosy.engine.errors import ApiError
from argosy.kinds.text import did_you_mean, unknown_name
from argosy.local import node_set
from argosy.local.node.agent import Agent
from argosy.local.node.node_control import NodeControl
from argosy.local.node_set import MAX_NODES, NodeChangeError, NodeEntry, NodeSet
from argosy.local.schema.validation.names import label_problems
from argosy.wire.messages import HttpError, Request, Response

MAX_SECONDS = 86400.0
MAX_PRETEND_GPUS = 64

Change = Callable[[NodeEntry], NodeEntry]


class NodeRequests:
    def __init__(self, control: NodeControl, agent: Agent) -> None:
        self._control = control
        self._agent = agent

    async def answer(self, request: Request) -> Response:
        await self._control.started.wait()
        try:
            return await self._answer(request)
        except NodeChangeError as error:
            raise HttpError(409, str(error)) from None
        except ApiError as error:
            raise HttpError(503, f"recorded, and tried again until it succeeds: {error}") from None
        except OSError as error:
            raise HttpError(507, f"the change cannot be recorded: {error}") from None

    async def _answer(self, request: Request) -> Response:
        match request.method, request.path.strip("/").split("/")[1:]:
            case "GET", ["nodes"]:
                return _json({entry.name: entry for entry in self._control.nodes.entries})
            case "POST", ["nodes"]:
                return _json(await self._add(request))
            case "DELETE", ["nodes", name]:
                return _json(await self._remove(request, name))
            case "POST", ["nodes", name, action]:
                return _json(await self._change(name, _change_of(request, action)))
            case "POST", ["pods", namespace, name, "kill"]:
                return _json(await self._kill(request, namespace, name))
        raise HttpError(404, f"{request.method} {request.path} is not served here")

    async def _add(self, request: Request) -> NodeEntry:
        _check_parameters(request, "name", "pretendGpus")
        nodes = self._control.nodes
        entry = NodeEntry(
            request.parameter("name") or node_set.free_name(nodes),
            int(_number(request, "pretendGpus", self._control.pretend_gpus, MAX_PRETEND_GPUS)),
        )
        if problems := label_problems(entry.name):
            raise HttpError(400, f'name: invalid value "{entry.name}": {problems[0]}')
        if existing := nodes.get(entry.name):
            raise NodeChangeError(f"{entry.name}: there is a node of this name ({existing.state.lower()})")
        if len(nodes.names) >= MAX_NODES:
            raise NodeChangeError(f"{entry.name}: a control plane has at most {MAX_NODES} nodes")
        if await self._control.exists(entry.name):
            raise NodeChangeError(f"{entry.name}: the cluster has another Node of this name; delete it first")
        await self._control.change(lambda nodes: nodes.with_entry(entry))
        return entry

    async def _remove(self, request: Request, name: str) -> NodeEntry:
        _check_parameters(request)
        entry = self._find(self._control.nodes, name)
        await self._control.change(lambda nodes: nodes.without(name))
        return entry

    async def _change(self, name: str, change: Change) -> NodeEntry:
        changed: list[NodeEntry] = []

        def update(nodes: NodeSet) -> NodeSet:
            changed.append(change(self._find(nodes, name)))
            return nodes.with_entry(changed[0])

        await self._control.change(update)
        return changed[0]

    def _find(self, nodes: NodeSet, name: str) -> NodeEntry:
        entry = nodes.get(name)
        if entry is None:
            raise HttpError(404, unknown_name("node", name, nodes.names))
        return entry

    async def _kill(self, request: Request, namespace: str, name: str) -> dict[str, object]:
        _check_parameters(request, "signal")
        number = int(_number(request, "signal", signal.SIGKILL, signal.NSIG - 1))
        pod = self._agent.pods.get(namespace, name)
        if pod is None:
            names = [pod.metadata.name for pod in self._agent.pods.by("namespace", namespace)]
            raise HttpError(404, f"namespace {namespace}: {unknown_name('pod', name, names)}")
        containers = await self._agent.signal(pod, number)
        if not containers:
            raise HttpError(409, f"{name}: no container is running (phase {pod.status.phase})")
        policy = pod.spec.restart_policy
        return {"node": pod.spec.node_name, "containers": containers, "restartPolicy": policy}


def _change_of(request: Request, action: str) -> Change:
    """Return the change of a node that a request asks for."""
    match action:
        case "silence" | "resume":
            _check_parameters(request)
            return node_set.silence if action == "silence" else node_set.resume
        case "stop":
            _check_parameters(request, "for")
            seconds = _seconds(request, "for")
            back_at = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
            return lambda entry: node_set.stop(entry, back_at)
        case "reclaim":
            _check_parameters(request, "in", "backAfter")
            # Whole seconds, as the annotation has them: the node ends at the announced time.
            end = math.ceil(datetime.now(UTC).timestamp() + (_seconds(request, "in") or 0.0))
            at, back_after = datetime.fromtimestamp(end, UTC), _seconds(request, "backAfter")
            return lambda entry: node_set.reclaim(entry, at, back_after)
    actions = ("reclaim", "resume", "silence", "stop")
    raise HttpError(404, unknown_name("action", action, actions))


def _check_parameters(request: Request, *known: str) -> None:
    for name in request.query:
        if name not in known:
            raise HttpError(400, f"unknown parameter {name}{did_you_mean(name, known)}")


def _seconds(request: Request, name: str) -> float | None:
    return _number(request, name, 0.0, MAX_SECONDS) if name in request.query else None


def _number(request: Request, name: str, default: float, most: float) -> float:
    if name not in request.query:
        return default
    text = request.parameter(name)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise HttpError(400, f'{name}: invalid value "{text}": must be between 0 and {most:g}')
    return number


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content))
