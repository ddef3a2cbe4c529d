"""The OpenAPI v2 document, which kubectl reads before it sends a `kind: List` or a review.

kubectl validates these itself, by this document alone. It names every kind and declares no fields, so that
kubectl accepts any object and leaves validation to the server. It is encoded as the protobuf message
`Document`, the only form that kubectl reads; field numbers are those of OpenAPIv2.proto of gnostic-models.
"""

from collections.abc import Iterable

import msgspec

from argosy.local.schema.openapi.v3 import PublishedKind

_KIND = "x-kubernetes-group-version-kind"


def encode_v2(kinds: Iterable[PublishedKind], kubernetes: str) -> bytes:
    """Return the document of all kinds that are served."""
    info = _field(1, b"Kubernetes") + _field(2, kubernetes.encode())
    definitions = b"".join(_field(1, _definition(kind)) for kind in kinds)
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"") + _field(9, definitions)


def _definition(kind: PublishedKind) -> bytes:
    extension = _field(1, _KIND.encode()) + _field(2, _field(2, msgspec.json.encode([kind.place])))
    schema = _field(22, _field(1, b"object")) + _field(31, extension)
    return _field(1, kind.component.encode()) + _field(2, schema)


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
