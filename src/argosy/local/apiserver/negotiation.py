"""Content types: what a client wants back, and what it sent.

An answer is JSON in one of three forms: the object itself, a Table (what `kubectl get` prints) or only the
metadata. Bodies are JSON or YAML; a patch is named by its content type.
"""

from typing import Literal

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.status import StatusError, not_acceptable

Form = Literal["object", "table", "metadata"]

OFFERED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_JSON = ("application/json", "*/*", "")
_OFFERED_TOO = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")


def wanted_form(request: Request, *, custom: bool = False, listed: bool = False) -> Form:
    """The first form in the Accept header that can be given; 406 when there is none.

    What is then told depends on whether the kind is a custom one, and on whether a list was asked for.
    """
    accept = request.header(b"accept")
    if not accept:
        return "object"
    known = False
    for clause in accept.split(","):
        kind, *rest = (part.strip() for part in clause.split(";"))
        if kind not in _JSON and kind != "application/yaml":
            continue
        known = True
        request.yaml = kind == "application/yaml"
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        wanted = parameters.get("as")
        if wanted is None:
            return "object"
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
            continue
        if wanted == "Table":
            return "table"
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return "metadata"
    if known:
        raise not_acceptable(OFFERED)
    if custom:
        raise not_acceptable(OFFERED)
    offered = ", ".join([*OFFERED, *(_OFFERED_TOO if listed else ())])
    message = f"406: Not Acceptable\n\nAvailable representations: {offered}"
    raise StatusError(406, "NotAcceptable", message, {})


def content_type(request: Request) -> str:
    return request.header(b"content-type").split(";")[0].strip().lower()
