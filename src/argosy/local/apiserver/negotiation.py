"""Content negotiation: the form of a response by the Accept header, and the content type of a request.

A response is JSON or YAML in one of three forms: the object itself, a Table (which `kubectl get` prints) or
only the metadata.
"""

from typing import Literal

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.status import not_acceptable

Form = Literal["object", "table", "metadata"]

OFFERED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_JSON = ("application/json", "*/*", "")


def wanted_form(request: Request) -> Form:
    """Return the first form in the Accept header that is supported; 406 if there is none."""
    accept = request.header(b"accept")
    if not accept:
        return "object"
    for clause in accept.split(","):
        kind, *clause_parameters = (part.strip() for part in clause.split(";"))
        if kind not in _JSON and kind != "application/yaml":
            continue
        request.yaml = kind == "application/yaml"
        parameters = dict(part.split("=", 1) for part in clause_parameters if "=" in part)
        wanted = parameters.get("as")
        if wanted is None:
            return "object"
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
            continue
        if wanted == "Table":
            return "table"
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return "metadata"
    raise not_acceptable(OFFERED)


def content_type(request: Request) -> str:
    return request.header(b"content-type").split(";")[0].strip().lower()
