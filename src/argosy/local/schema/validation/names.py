"""Validates names, labels and other short texts.

Every `…_problems` function returns the details of the errors, an empty list if the text is valid.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

_Check = Callable[[str], list[str]]

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + "(\\." + LABEL + ")*"
QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_qualified = re.compile(QUALIFIED).fullmatch
_relaxed_env = re.compile(r"[ -<>-~]+").fullmatch
_port_name = re.compile(r"[-a-z0-9]+").fullmatch


def _check(pattern: str, limit: int, description: str, unit: str = "characters") -> _Check:
    """Return a check of the length and the characters of a text; the description ends in examples."""
    matches = re.compile(pattern).fullmatch

    def problems(value: str) -> list[str]:
        result = [f"must be no more than {limit} {unit}"] if len(value.encode()) > limit else []
        if not matches(value):
            result.append(f"{description}, regex used for validation is '{pattern}')")
        return result

    return problems


subdomain_problems = _check(
    SUBDOMAIN,
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com'",
)
"""An RFC 1123 subdomain: names of most objects."""
service_problems = _check(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'",
)
"""An RFC 1035 label: names in CustomResourceDefinitions."""
label_value_problems = _check(
    f"({QUALIFIED})?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'",
    "bytes",
)
_dns_label_problems = _check(
    LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc'",
)
_key_problems = _check(
    "[-._a-zA-Z0-9]+",
    253,
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name'",
)


def label_problems(value: str) -> list[str]:
    """Return an RFC 1123 label: names of namespaces, containers, volumes."""
    if "." in value and not subdomain_problems(value):
        return ["must not contain dots"]
    return _dns_label_problems(value)


def path_segment_problems(value: str) -> list[str]:
    """Return a name that only has to be a segment of a URL path: roles and their bindings."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in value]


@lru_cache(maxsize=4096)
def is_qualified_name(value: str) -> bool:
    """Return True if a text is a valid label or annotation key; cached, because keys repeat."""
    return not qualified_name_problems(value)


@lru_cache(maxsize=4096)
def is_label(value: str) -> bool:
    return not label_problems(value)


@lru_cache(maxsize=4096)
def is_variable_name(value: str) -> bool:
    return not env_name_problems(value)


@lru_cache(maxsize=4096)
def is_label_value(value: str) -> bool:
    return not label_value_problems(value)


def qualified_name_problems(value: str) -> list[str]:
    """Return a label or annotation key, a resource name, a finalizer."""
    prefix, slash, name = value.rpartition("/")
    problems = []
    if prefix.count("/"):
        return [
            _qualified_text() + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [
            f"prefix part {problem}".replace(" characters", " bytes", problem.startswith("must be no more"))
            for problem in subdomain_problems(prefix)
        ]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _qualified(name):
        problems.append(_qualified_text("name part must"))
    return problems


def env_name_problems(value: str) -> list[str]:
    """Return a variable's name: any printable ASCII character but `=`."""
    problems = []
    if not value:
        problems.append("environment variable name must be a non-empty string")
    elif not _relaxed_env(value):
        problems.append(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return problems


def config_key_problems(value: str) -> list[str]:
    """Return a key of a ConfigMap or Secret."""
    problems = _key_problems(value)
    if value in (".", ".."):
        problems.append(f"must not be '{value}'")
    elif value.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def port_name_problems(value: str) -> list[str]:
    """Return a container port's name."""
    problems = []
    if len(value) > 15:
        problems.append("must be no more than 15 characters")
    if not _port_name(value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_problems(value: object) -> list[str]:
    if isinstance(value, int) and 1 <= value <= 65535:
        return []
    return ["must be between 1 and 65535, inclusive"]


def address_problems(value: str) -> list[str]:
    try:
        ip_address(value)
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return []


_BY_KIND: dict[tuple[str, str], _Check] = {
    ("", "Namespace"): label_problems,
    ("", "Service"): label_problems,
    ("rbac.authorization.k8s.io", "Role"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment_problems,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment_problems,
}


def name_problems(group: str, kind: str, value: str) -> list[str]:
    """Return what is wrong with the name of an object of this kind."""
    return _BY_KIND.get((group, kind), subdomain_problems)(value)


def _qualified_text(start: str = "a valid label key must") -> str:
    return (
        f"{start} consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        f"'{QUALIFIED}')"
    )
