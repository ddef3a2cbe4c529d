"""The OpenAPI v2 document names every kind."""

from argosy.local.schema.builtin import builtin_kinds
from argosy.local.schema.openapi.v2 import encode_v2
from argosy.local.schema.openapi.v3 import published

KINDS = [published(info) for info in builtin_kinds()]


def test_every_kind_is_defined() -> None:
    encoded = encode_v2(KINDS, "v1.36.3")
    assert all(kind.component.encode() in encoded for kind in KINDS)


def test_the_protobuf_form_has_the_fields_of_gnostic() -> None:
    (pod,) = [kind for kind in KINDS if kind.component.endswith("core.v1.Pod")]
    encoded = encode_v2([pod], "v1")
    kind = b'[{"group":"","version":"v1","kind":"Pod"}]'
    extension = (
        b"\x0a\x1fx-kubernetes-group-version-kind\x12" + bytes((len(kind) + 2, 0x12, len(kind))) + kind
    )
    schema = b"\xb2\x01\x08\x0a\x06object\xfa\x01" + bytes((len(extension),)) + extension
    definition = b"\x0a\x16io.k8s.api.core.v1.Pod\x12" + bytes((len(schema),)) + schema
    assert encoded.startswith(b"\x0a\x032.0\x12\x10\x0a\x0aKubernetes\x12\x02v1\x42\x00")
    assert encoded.endswith(definition)
