"""Encodes and decodes the continue token of a paged list: the revision and the last key of the page.

The format is that of Kubernetes. Revision -1 means the newest one, for clients that continue a list whose
revision has been compacted.
"""

import base64
import binascii
import posixpath

import msgspec

from argosy.local.apiserver.status import bad_request

NOW = -1
_VERSION = "meta.k8s.io/v1"


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def write_token(rv: int, key: str) -> str:
    """Return the token for the page after `key`."""
    raw = msgspec.json.encode(_Token(_VERSION, rv, key + "\0"))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_token(token: str) -> tuple[int, str]:
    """Return the revision and the key of a token; 400 for anything else."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        decoded = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    path = decoded.start if decoded.start.startswith("/") else f"/{decoded.start}"
    if decoded.v != _VERSION or decoded.rv == 0 or not decoded.start or posixpath.normpath(path) != path:
        raise bad_request("invalid continue token: continue key is not valid")
    return decoded.rv, decoded.start.rstrip("\0")
