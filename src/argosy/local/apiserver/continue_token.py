"""The continue token of a list: from where the next page goes on, and at which version.

The same as Kubernetes', field by field, and as strict: what is not such a token is refused with the reason.
A version of minus one stands for "as of now", for clients that go on with a list whose version is gone.
"""

import base64
import posixpath
import re

import msgspec

from argosy.local.apiserver.body import go_kind, parse_value
from argosy.local.apiserver.status import StatusError, bad_request

NOW = -1
_VERSION = "meta.k8s.io/v1"
_BAD = "invalid continue token: continue key is not valid"
_TYPES = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def write_token(rv: int, key: str) -> str:
    """A token for what comes after `key`."""
    raw = msgspec.json.encode(_Token(_VERSION, rv, key + "\0"))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_token(token: str) -> tuple[int, str]:
    """The version and the key of a token; 400 for anything else."""
    fields = _fields(_decoded(token))
    version, rv, start = fields["v"], fields["rv"], fields["start"]
    if version != _VERSION:
        raise bad_request(f"{_BAD}: server does not recognize this encoded version {version}")
    assert isinstance(rv, int)
    assert isinstance(start, str)
    if rv == 0:
        raise bad_request(f"{_BAD}: incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise bad_request(f"{_BAD}: encoded start key empty (version {_VERSION})")
    path = start if start.startswith("/") else f"/{start}"
    if posixpath.normpath(path) != path:
        raise bad_request(f"{_BAD}: {start}")
    return rv, start.rstrip("\0")


def _decoded(token: str) -> bytes:
    strange = re.search(r"[^A-Za-z0-9_-]", token)
    if strange or len(token) % 4 == 1:
        at = strange.start() if strange else len(token) - 1
        raise bad_request(f"{_BAD}: illegal base64 data at input byte {at}")
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _fields(raw: bytes) -> dict[str, object]:
    value = parse_value(raw, f"{_BAD}: ")
    if not isinstance(value, dict):
        raise _mistyped(value, "value of type storage.continueToken")
    found: dict[str, object] = {"v": "", "rv": 0, "start": ""}
    for name, (kind, told) in _TYPES.items():
        given = value.get(name)
        if given is None:
            continue
        if not isinstance(given, kind) or isinstance(given, bool):
            raise _mistyped(given, f"struct field continueToken.{name} of type {told}")
        found[name] = given
    return found


def _mistyped(value: object, into: str) -> StatusError:
    return bad_request(f"{_BAD}: json: cannot unmarshal {go_kind(value)} into Go {into}")
