"""Checks names and label values by the rules of Kubernetes, and says what is wrong with them."""

import re

from argosy.kinds.text import truncate

MAX_LABEL_CHARS = 63
"""The limit of host names, label values and names of services."""

_MAX_QUOTED_CHARS = 80
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def dns_label_error(name: str) -> str | None:
    """Return what makes `name` an invalid DNS label (RFC 1123); None if it is valid."""
    return _name_error(
        name, _DNS_LABEL, "lower-case letters, digits and '-', with a letter or digit at both ends"
    )


def service_name_error(name: str) -> str | None:
    """Return what makes `name` an invalid name for a Service (RFC 1035); None if it is valid."""
    return _name_error(name, _SERVICE_NAME, "lower-case letters, digits and '-', with a letter first")


def is_label_value(text: str) -> bool:
    return len(text) <= MAX_LABEL_CHARS and _LABEL_VALUE.fullmatch(text) is not None


def _name_error(name: str, pattern: re.Pattern[str], allowed: str) -> str | None:
    if len(name) > MAX_LABEL_CHARS:
        excess, shown = len(name) - MAX_LABEL_CHARS, truncate(name, _MAX_QUOTED_CHARS)
        return f"{shown!r} has {len(name)} characters, {excess} more than the {MAX_LABEL_CHARS} allowed"
    if not pattern.fullmatch(name):
        return f"{name!r} may only have {allowed}"
    return None
