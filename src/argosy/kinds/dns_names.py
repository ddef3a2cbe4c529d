"""What Kubernetes accepts as a name, told as a complaint that says what is wrong; None when nothing is."""

import re

from argosy.kinds.messages import truncate

MAX_LABEL_CHARS = 63
"""Host names, label values, services."""

_SHOWN = 80
"""Characters of a name that is too long."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LETTER_FIRST = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def dns_label_error(name: str) -> str | None:
    """Why `name` is no DNS label (RFC 1123)."""
    return _problem(name, _LABEL, "lower-case letters, digits and '-', with a letter or digit at both ends")


def service_name_error(name: str) -> str | None:
    """Why `name` cannot be the name of a service (RFC 1035)."""
    return _problem(name, _LETTER_FIRST, "lower-case letters, digits and '-', with a letter first")


def is_label_value(text: str) -> bool:
    return len(text) <= MAX_LABEL_CHARS and _VALUE.fullmatch(text) is not None


def _problem(name: str, form: re.Pattern[str], words: str) -> str | None:
    if len(name) > MAX_LABEL_CHARS:
        over, begin = len(name) - MAX_LABEL_CHARS, truncate(name, _SHOWN)
        return f"{begin!r} has {len(name)} characters, {over} more than the {MAX_LABEL_CHARS} possible"
    if not form.fullmatch(name):
        return f"{name!r} may only have {words}"
    return None
