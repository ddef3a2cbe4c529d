"""OpenAPI documents, made when someone asks and kept until the kinds of their group version change.

The index names each document by a hash, so that kubectl may keep it; the hash is of what the document is made
from, so the index costs nothing.
"""

import hashlib

import msgspec

from argosy.local.apiserver.http import Request, Response, reply
from argosy.local.apiserver.registry import Registry, Served
from argosy.local.schema.builtin import kubernetes_version
from argosy.local.schema.definitions import CrdInfo, parse_crd
from argosy.local.schema.model import Json
from argosy.local.schema.openapi import PublishedKind, encode_document, published, published_custom


class Documents:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[str, bytes]] = {}

    def answer(self, request: Request) -> Response | None:
        """The index or a document; None when the path is neither."""
        parts = request.path.strip("/").split("/", 2)
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

    def _by_path(self) -> dict[str, list[Served]]:
        found: dict[str, list[Served]] = {}
        for served in self._registry.all():
            key = f"apis/{served.group}/{served.version}" if served.group else f"api/{served.version}"
            found.setdefault(key, []).append(served)
        return found

    def _document(self, key: str, kinds: list[Served]) -> bytes:
        stamp = _hash(kinds)
        made = self._made.get(key)
        if made is None or made[0] != stamp:
            shown = [kind for served in kinds if (kind := _published(served))]
            made = self._made[key] = (stamp, encode_document(shown, kubernetes_version()))
        return made[1]


def _published(served: Served) -> PublishedKind | None:
    if served.builtin is not None:
        return published(served.builtin)
    assert served.custom is not None
    info = parse_crd(served.custom.whole)
    if not isinstance(info, CrdInfo):
        return None
    return next((published_custom(info, v) for v in info.versions if v.name == served.version), None)


def _hash(kinds: list[Served]) -> str:
    content: list[Json] = [
        served.custom.whole if served.custom else {"kind": served.kind} for served in kinds
    ]
    return hashlib.sha512(kubernetes_version().encode() + msgspec.json.encode(content)).hexdigest().upper()
