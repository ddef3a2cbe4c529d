"""Authenticates, authorizes and routes requests, and turns errors into Status responses."""

import logging
from collections.abc import Awaitable, Callable

from argosy.local.apiserver.access_reviews import KINDS as REVIEWS
from argosy.local.apiserver.access_reviews import create_review
from argosy.local.apiserver.api import Api, Call
from argosy.local.apiserver.auth import Authenticator
from argosy.local.apiserver.create import create_object
from argosy.local.apiserver.delete import delete_collection, delete_object
from argosy.local.apiserver.discovery import discovery
from argosy.local.apiserver.evictions import evict
from argosy.local.apiserver.http import Request, finished, reply, reply_error
from argosy.local.apiserver.impersonation import acting_user
from argosy.local.apiserver.kubelet_proxy import node_checkpoint, node_request, pod_log, pod_stream
from argosy.local.apiserver.openapi import Documents
from argosy.local.apiserver.patch import patch_object
from argosy.local.apiserver.rbac import attributes_of, denied
from argosy.local.apiserver.read import get_object, list_objects
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.requestinfo import Target, parse_target, verb_of
from argosy.local.apiserver.scale import scale
from argosy.local.apiserver.status import (
    StatusError,
    bad_request,
    internal,
    method_not_allowed,
    method_not_supported,
    not_found,
    page_not_found,
)
from argosy.local.apiserver.subresources import bind, finalize_namespace, request_token
from argosy.local.apiserver.tokens import Signer
from argosy.local.apiserver.unsupported import unsupported_error
from argosy.local.apiserver.update import update_object
from argosy.local.apiserver.watch import Lines, watch_objects
from argosy.wire import messages
from argosy.wire.messages import DisconnectedError, HandlerResult, Response, Upgrade

_PLAIN = b"text/plain; charset=utf-8"
Handler = Callable[[Call], Awaitable[Response]]


class App:
    def __init__(self, api: Api, authenticator: Authenticator, signer: Signer, address: str) -> None:
        self._api, self._authenticator, self._signer, self._address = api, authenticator, signer, address
        self._authorizer = api.authorizer
        self._lines = Lines()
        self._documents = Documents(api.registry)
        self._handlers: dict[str, Handler] = {
            "get": get_object,
            "list": list_objects,
            "watch": lambda call: watch_objects(call, self._lines),
            "create": create_object,
            "update": update_object,
            "patch": patch_object,
            "delete": delete_object,
            "deletecollection": delete_collection,
        }
        self.ready = False
        self._log = logging.getLogger(__name__)

    async def __call__(self, wire: messages.Request) -> HandlerResult:
        request = Request(wire)
        try:
            if wire.wants_websocket:
                return await self._websocket(request)
            response = await self._answer(request)
        except StatusError as error:
            request.yaml = request.yaml or request.header(b"accept").startswith("application/yaml")
            response = reply_error(error)
        except DisconnectedError:
            raise
        except Exception as error:
            self._log.exception("%s %s failed", request.method, request.path)
            response = reply_error(internal(f"{type(error).__name__}: {error}"))
        return finished(request, response)

    def _identify(self, request: Request) -> None:
        """Set the user of the request: the authenticated or the impersonated one."""
        request.user = self._authenticator.user(request)
        request.user = acting_user(request, self._authorizer)

    async def _websocket(self, request: Request) -> Upgrade:
        self._identify(request)
        target = parse_target(request.path)
        if target is None:
            raise page_not_found()
        if target.subresource not in ("exec", "attach") or target.plural != "pods":
            raise unsupported_error(target) or page_not_found()
        for verb in ("get", "create"):
            self._authorize(request, target, verb)
        served = self._api.registry.find("", "v1", "pods")
        assert served is not None
        return await pod_stream(Call(self._api, request, target, served))

    async def _answer(self, request: Request) -> Response:
        if request.path.split("/")[1] in ("healthz", "livez", "readyz"):
            return self._health(request)
        self._identify(request)
        target = parse_target(request.path)
        if target is None:
            self._authorize(request, None, "")
            if request.path.startswith("/argosy/"):
                return await node_request(self._api, request)
            return self._other(request)
        verb = verb_of(request, target)
        self._authorize(request, target, verb)
        return await self._resource(request, target, verb)

    def _authorize(self, request: Request, target: Target | None, verb: str) -> None:
        attributes = attributes_of(request, target, verb)
        allowed, why = self._authorizer.allowed(attributes)
        if not allowed:
            raise denied(attributes, why)

    def _health(self, request: Request) -> Response:
        if request.path.startswith("/readyz") and not self.ready:
            return Response(b"[-]poststarthook failed", 500, _PLAIN)
        return Response(b"ok", 200, _PLAIN)

    def _other(self, request: Request) -> Response:
        if request.method == "HEAD" or (request.path == "/version" and request.method != "GET"):
            raise method_not_allowed()
        if request.path == "/version":
            return reply(_version())
        if request.path.startswith("/openapi/"):
            document = self._documents.answer(request)
            if document is not None:
                return document
        if request.path.startswith("/api"):
            document = discovery(request, self._api.registry, self._address)
            if document is not None:
                return document
            parts = request.path.strip("/").split("/")
            if len(parts) == 3 and self._api.registry.serves(parts[1]):
                raise page_not_found()
        return Response(b"404 page not found\n", 404, _PLAIN)

    async def _resource(self, request: Request, target: Target, verb: str) -> Response:
        served = self._api.registry.find(target.group, target.version, target.plural)
        if served is None:
            if self._api.registry.serves(target.group):
                raise page_not_found()
            return Response(b"404 page not found\n", 404, _PLAIN)
        lacks_namespace = served.namespaced and not target.namespace and verb not in ("list", "watch")
        if served.custom is not None and (lacks_namespace or bool(target.namespace) > served.namespaced):
            return Response(b"404 page not found\n", 404, _PLAIN)
        call = Call(self._api, request, target, served)
        return await self._handler(call, verb)(call)

    def _handler(self, call: Call, verb: str) -> Handler:
        served, target = call.served, call.target
        _check_scope(served, target, verb)
        if served.custom is not None and verb in ("update", "patch") and not target.name:
            raise bad_request("name must be provided")
        if (
            (verb == "create" and target.name and not target.subresource and served.custom is None)
            or (verb in ("update", "patch") and not target.name)
            or call.request.method == "HEAD"
        ):
            raise method_not_allowed()
        if target.subresource:
            return self._subresource(call, verb)
        if served.plural in REVIEWS and verb == "create":
            return lambda call: create_review(call, self._authorizer, self._authenticator)
        if served.storage == "bindings" and verb == "create":
            return bind
        handler = self._handlers.get(verb)
        if handler is None and served.custom is not None:
            raise method_not_supported(served.group, served.plural, "")
        if handler is None or verb not in served.verbs:
            raise method_not_allowed()
        return handler

    def _subresource(self, call: Call, verb: str) -> Handler:
        served, sub = call.served, call.served.subresource(call.target.subresource)
        if sub is None and served.custom is not None:
            raise not_found(served.group, served.plural, call.target.name)
        if sub is None:
            raise page_not_found()
        if error := unsupported_error(call.target):
            raise error
        if call.target.rest and sub.name in ("status", "scale") and served.custom is None:
            raise page_not_found()  # for custom resources, Kubernetes ignores the rest of the path
        if verb not in sub.verbs:
            raise (
                method_not_allowed()
                if served.custom is None
                else method_not_supported(served.group, served.plural, verb)
            )
        match served.plural, sub.name:
            case _, "scale":
                return scale
            case "namespaces", "finalize":
                return finalize_namespace
            case "pods", "binding":
                return bind
            case "pods", "eviction":
                return evict
            case "nodes", "proxy":
                return node_checkpoint
            case "pods", "log":
                return pod_log
            case "serviceaccounts", "token":
                return lambda call: request_token(call, self._signer)
            case _, "status":
                return self._handlers[verb]
        raise page_not_found()


def _check_scope(served: Served, target: Target, verb: str) -> None:
    if served.namespaced and not target.namespace and (target.name or verb in ("create", "deletecollection")):
        raise page_not_found() if target.name else method_not_allowed()
    if not served.namespaced and target.namespace and target.plural != "namespaces":
        raise page_not_found()


def _version() -> dict[str, object]:
    from argosy.local.schema.builtin import kubernetes_version

    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "gitVersion": f"{version}+argosy",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
