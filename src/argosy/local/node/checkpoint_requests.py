"""Answers the kubelet's requests for checkpoints, by the API server's proxy and over HTTPS.

`POST /checkpoint/NAMESPACE/POD/CONTAINER?timeout=SECONDS` writes a tar on the node and returns its path. All
nodes of this machine share an address and a port. Over HTTPS a client needs a bearer token whose user may
create `nodes/checkpoint` of the node on which the pod runs; the API server decides both.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from argosy.checkpoint.drivers import criu
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.local.node import checkpoint_files
from argosy.local.node.pod_types import Pod
from argosy.local.node.settings import Settings
from argosy.local.node.shim_socket import ShimRequest
from argosy.wire.messages import HttpError, Request, Response
from argosy.wire.server import Server

log = Logger(__name__)

PORT: Final = 10250
_DEFAULT_SECONDS: Final = 120
_MAX_SECONDS: Final = 3600
_GRACE_SECONDS: Final = 0.5

FindPod = Callable[[str, str], Pod | None]
WriteCheckpoint = Callable[[str, ShimRequest], Awaitable[str]]


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class CheckpointRequests:
    """Has shims write checkpoints into the folder of the state for them."""

    def __init__(self, settings: Settings, find_pod: FindPod, write: WriteCheckpoint) -> None:
        self._folder = settings.checkpoints
        self._find_pod = find_pod
        self._write = write

    def find(self, namespace: str, name: str, node: str = "") -> Pod:
        """Return the pod, which has to be on `node` if that is given."""
        pod = self._find_pod(namespace, name)
        if pod is None or (node and pod.spec.node_name != node):
            raise HttpError(404, "pod does not exist")
        return pod

    async def answer(self, request: Request, namespace: str, name: str, container: str) -> Response:
        pod = self.find(namespace, name, request.parameter("node"))
        images = {item.name: item.image for item in pod.every_container}
        if container not in images:
            raise HttpError(404, f"container {container} does not exist")
        seconds = _timeout(request.query.get("timeout", []))
        prefix = await asyncio.to_thread(criu.find_prefix)
        if prefix is None:
            problem = criu.MISSING
        else:
            target = self._target(pod, container)
            shim_request = ShimRequest(
                op="checkpoint",
                container=container,
                target=str(target),
                criu=str(prefix),
                image=images[container],
            )
            try:
                async with asyncio.timeout(seconds):
                    problem = await self._write(pod.metadata.uid, shim_request)
            except TimeoutError:
                problem = f"it took longer than {seconds} s"
        if problem:
            raise HttpError(500, f"checkpointing of {namespace}/{name}/{container} failed ({problem})")
        log.info("checkpointed a container", pod=f"{namespace}/{name}", container=container, file=str(target))
        return Response(msgspec.json.encode({"items": [str(target)]}))

    def _target(self, pod: Pod, container: str) -> Path:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        now = datetime.now(UTC)
        stem = f"checkpoint-{pod.metadata.name}_{pod.metadata.namespace}-{container}-"
        target = self._folder / f"{stem}{now:%Y-%m-%dT%H:%M:%SZ}.tar"
        return self._folder / f"{stem}{now:%Y-%m-%dT%H:%M:%S.%fZ}.tar" if target.exists() else target


class SecureRequests:
    """Authenticates and authorizes requests for checkpoints over HTTPS."""

    def __init__(self, client: Client, checkpoints: CheckpointRequests) -> None:
        self._client = client
        self._checkpoints = checkpoints

    async def answer(self, request: Request) -> Response:
        try:
            user = await self._authenticate(request)
            match request.method, request.path.strip("/").split("/"):
                case "POST", ["checkpoint", namespace, name, container]:
                    await self._authorize(user, namespace, name)
                    return await self._checkpoints.answer(request, namespace, name, container)
        except ApiError as error:
            raise HttpError(500, f"the API server does not decide about the request: {error}") from error
        raise HttpError(404, "404 page not found")

    async def _authenticate(self, request: Request) -> _UserInfo:
        scheme, _, token = request.header(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise HttpError(401, "Unauthorized")
        review = await self._review("authentication.k8s.io", "TokenReview", {"token": token.strip()})
        status = msgspec.json.decode(review, type=_TokenReview).status
        if not status.authenticated:
            raise HttpError(401, "Unauthorized")
        return status.user

    async def _authorize(self, user: _UserInfo, namespace: str, name: str) -> None:
        """Raise 403 unless the user may create checkpoints on the node of the pod.

        Of a pod that does not exist, only users learn that who may do so on every node.
        """
        try:
            node = self._checkpoints.find(namespace, name).spec.node_name
        except HttpError:
            node = ""
        attributes = {"verb": "create", "version": "v1", "resource": "nodes", "subresource": "checkpoint"}
        spec: dict[str, object] = {"user": user.username, "uid": user.uid, "groups": user.groups}
        spec["resourceAttributes"] = {**attributes, "name": node}
        review = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        if not msgspec.json.decode(review, type=_AccessReview).status.allowed:
            raise HttpError(
                403,
                f"Forbidden (user={user.username}, verb=create, resource=nodes, subresource(s)=[checkpoint])",
            )

    async def _review(self, group: str, kind: str, spec: dict[str, object]) -> bytes:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        return await self._client.request("POST", f"/apis/{group}/v1/{kind.lower()}s", body=body)


async def serve(certificate: Path, requests: SecureRequests) -> None:
    """Serve HTTPS on the kubelet's port until cancelled; without it, only the API server's proxy is left."""
    server = Server(requests.answer)
    try:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
        await server.listen_tcp("0.0.0.0", PORT, tls)  # noqa: S104 (of the cluster's own network)
        await asyncio.Event().wait()
    except OSError as error:  # there is no certificate, or a pod in the host's network has the port
        log.warning("checkpoints are not served over HTTPS", error=str(error))
    finally:
        await server.close(_GRACE_SECONDS)


def remove_unfinished(folder: Path) -> None:
    """Remove what checkpoints left behind whose pods have ended meanwhile."""
    for path in [*folder.glob("*.tar.tmp"), *folder.glob("*.tar.partial")]:
        checkpoint_files.remove_unfinished(path.with_suffix(""))


def _timeout(values: list[str]) -> int:
    """Return the last timeout of a request, in seconds; as for a kubelet, an invalid one is not found."""
    if not values:
        return _DEFAULT_SECONDS
    try:
        seconds = int(values[-1])
    except ValueError:
        raise HttpError(404, "cannot parse value of timeout parameter") from None
    return min(seconds, _MAX_SECONDS) if seconds > 0 else _DEFAULT_SECONDS
