"""Validates common string formats of custom resources; others that Kubernetes validates have no effect."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_network

from argosy.local.schema.validation.names import label_problems, subdomain_problems

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I)
_DURATION = re.compile(
    r"[-+]?(?:\d+\.?\d*|\.\d+)\s*(?:ns|us|µs|μs|ms|s|m|h|d|w)"
    r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))*|0"
)
_DATE_TIME = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:[0-2]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)
_HOST = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}"
    r"[A-Za-z0-9])?)*\.?"
)
_URI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:\S+|/\S*)")


def format_holds(format: str, value: str) -> bool | None:
    """Return whether a text has a format; None for formats that are not validated."""
    check = _CHECKS.get(format.replace("-", "") if not format.startswith("k8s-") else format)
    return None if check is None else check(value)


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda value: pattern.fullmatch(value) is not None


def _base64(value: str) -> bool:
    try:
        return bool(value) and base64.b64decode(value, validate=True) is not None
    except binascii.Error:
        return False


def _cidr(value: str) -> bool:
    return "/" in value and _parses(lambda text: ip_network(text, strict=False))(value)


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "datetime": _matches(_DATE_TIME),
    "date": _parses(date.fromisoformat),
    "duration": _matches(_DURATION),
    "uri": _matches(_URI),
    "email": _matches(re.compile(r"[^@\s]+@[^@\s]+")),
    "hostname": _matches(_HOST),
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "cidr": _cidr,
    "uuid": _matches(_UUID),
    "byte": _base64,
    "k8s-short-name": lambda value: not label_problems(value),
    "k8s-long-name": lambda value: not subdomain_problems(value),
}
