"""Protobuf bodies."""

from argosy.local.apiserver.objects import Json


class ProtobufError(ValueError):
    """The bytes are not what they say."""


def decode(raw: bytes) -> Json:
    raise ProtobufError(f"{len(raw)} bytes of protobuf")
