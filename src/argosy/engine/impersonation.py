"""Whom a kubeconfig user acts as: `as`, `as-uid`, `as-groups` and `as-user-extra`.

The API server checks the rights of the user, and then acts as the one that is named in these headers. They
have to be on every request: one without them is done with the user's own rights, which are usually greater.
"""

import re
from string import ascii_letters, digits

from argosy.engine.kubeconfig_entries import KubeconfigEntry

Headers = tuple[tuple[str, str], ...]

HEADER_NAME_CHARS = frozenset((ascii_letters + digits + "!#$&'*+-.^_`|~").encode())
"""Bytes that stand for themselves in the name of a header. `%` may too, but begins an escaped byte here."""

CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f]")


def impersonation_headers(user: KubeconfigEntry) -> Headers:
    """The headers of every request; a group or an extra value each has a header of its own."""
    name, uid = user.text("as"), user.text("as-uid")
    groups: list[str] = user.typed("as-groups", list[str], [])
    extra: dict[str, list[str]] = user.typed("as-user-extra", dict[str, list[str]], {})
    if not name:
        for field in ("as-uid", "as-groups", "as-user-extra"):
            if user.value.get(field):
                user.refuse(field, "not supported without `as`, the user to impersonate")
        return ()
    headers = [("as", "Impersonate-User", name)]
    if uid:
        headers.append(("as-uid", "Impersonate-Uid", uid))
    headers += [("as-groups", "Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        headers += [("as-user-extra", f"Impersonate-Extra-{_escape(key)}", value) for value in values]
    for field, _, value in headers:
        if CONTROL_CHARS.search(value):
            user.refuse(field, f"invalid value {value!r}: must not contain control characters")
    return tuple((header, value) for _, header, value in headers)


def _escape(key: str) -> str:
    """Percent-encode what cannot stand in a header's name, as client-go does; the API server undoes it."""
    return "".join(chr(byte) if byte in HEADER_NAME_CHARS else f"%{byte:02X}" for byte in key.encode())
