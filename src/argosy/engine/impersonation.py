"""Impersonation headers for the fields `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig user.

They must be sent with every request: a request without them would run with the user's own rights, which are
usually greater.
"""

import re
from string import ascii_letters, digits

from argosy.engine.kubeconfig_entries import KubeconfigEntry

Headers = tuple[tuple[str, str], ...]

HEADER_NAME_CHARS = frozenset((ascii_letters + digits + "!#$&'*+-.^_`|~").encode())
"""Bytes that are not escaped in the name of a header. `%` is escaped, because it begins an escaped byte."""

CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f]")


def impersonation_headers(user: KubeconfigEntry) -> Headers:
    """Return the impersonation headers; each group and each extra value has its own header."""
    name, uid = user.text("as"), user.text("as-uid")
    groups: list[str] = user.typed("as-groups", list[str], [])
    extra: dict[str, list[str]] = user.typed("as-user-extra", dict[str, list[str]], {})
    if not name:
        for field in ("as-uid", "as-groups", "as-user-extra"):
            if user.value.get(field):
                user.reject(field, "not supported without `as`, the user to impersonate")
        return ()
    headers = [("as", "Impersonate-User", name)]
    if uid:
        headers.append(("as-uid", "Impersonate-Uid", uid))
    headers += [("as-groups", "Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        headers += [("as-user-extra", f"Impersonate-Extra-{_escape(key)}", value) for value in values]
    for field, _, value in headers:
        if CONTROL_CHARS.search(value):
            user.reject(field, f"invalid value {value!r}: must not contain control characters")
    return tuple((header, value) for _, header, value in headers)


def _escape(key: str) -> str:
    """Percent-encode bytes that are not allowed in header names, as client-go does."""
    return "".join(chr(byte) if byte in HEADER_NAME_CHARS else f"%{byte:02X}" for byte in key.encode())
