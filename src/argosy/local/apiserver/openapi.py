"""OpenAPI documents, generated on request and cached until their kinds change.

v3 has a document for each group version. Its index has a hash for each, so that kubectl can cache them; the
hash is that of the definitions, so that the index does not need the documents. v2 has one document of all
kinds, in protobuf only, because only kubectl reads it; clients can cache it by its ETag.
"""

import hashlib

import msgspec

from argosy.local.apiserver.http import Request, Response, reply
from argosy.local.apiserver.registry import Registry, Served
from argosy.local.schema.builtin import kubernetes_version
from argosy.local.schema.model import Json
from argosy.local.schema.openapi.v2 import encode_v2
from argosy.local.schema.openapi.v3 import PublishedKind, encode_document, published, published_custom

_PROTOBUF = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PROTOBUF_OF_KUBECTL = b"application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The older name of the same media type, which kubectl uses."""


class Documents:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[str, tuple[str, bytes]] = {}

    def answer(self, request: Request) -> Response | None:
        """Return the index or a document; None for other paths."""
        parts = request.path.strip("/").split("/", 2)
        if parts[1:] == ["v2"]:
            return self._answer_v2(request)
        kinds = self._by_path()
        if parts[1:] == ["v3"]:
            paths = {
                key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={_hash(kinds[key])}"}
                for key in sorted(kinds)
            }
            return reply({"paths": paths})
        if len(parts) == 3 and parts[1] == "v3" and parts[2] in kinds:
            return Response(self._document(parts[2], kinds[parts[2]]))
        return None

    def _answer_v2(self, request: Request) -> Response:
        accept = request.header(b"accept").encode()
        if _PROTOBUF not in accept and _PROTOBUF_OF_KUBECTL not in accept:
            return Response(b"", 406, headers=[(b"vary", b"Accept")])
        kinds = list(self._registry.all())
        etag = f'"{_hash(kinds)}"'
        headers = [(b"vary", b"Accept"), (b"etag", etag.encode())]
        if etag in request.header(b"if-none-match"):
            return Response(b"", 304, _PROTOBUF, headers)
        published = [_published_kind(served) for served in kinds]
        return Response(encode_v2(published, kubernetes_version()), 200, _PROTOBUF, headers)

    def _by_path(self) -> dict[str, list[Served]]:
        by_path: dict[str, list[Served]] = {}
        for served in self._registry.all():
            key = f"apis/{served.group}/{served.version}" if served.group else f"api/{served.version}"
            by_path.setdefault(key, []).append(served)
        return by_path

    def _document(self, key: str, kinds: list[Served]) -> bytes:
        stamp = _hash(kinds)
        cached = self._cache.get(key)
        if cached is None or cached[0] != stamp:
            shown = [_published_kind(served) for served in kinds]
            cached = self._cache[key] = (stamp, encode_document(shown, kubernetes_version()))
        return cached[1]


def _published_kind(served: Served) -> PublishedKind:
    if served.builtin is not None:
        return published(served.builtin)
    assert served.crd is not None
    assert served.custom is not None
    return published_custom(served.crd, served.custom)


def _hash(kinds: list[Served]) -> str:
    content: list[Json] = [served.crd.raw if served.crd else {"kind": served.kind} for served in kinds]
    return hashlib.sha512(kubernetes_version().encode() + msgspec.json.encode(content)).hexdigest().upper()
