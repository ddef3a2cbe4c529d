"""Names, labels and other short texts: what may stand in them, and what Kubernetes says when it may not.

Every `…_problems` function returns the details of the errors, an empty list when all is well.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + "(\\." + LABEL + ")*"
SERVICE = "[a-z]([-a-z0-9]*[a-z0-9])?"
QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
CONFIG_KEY = "[-._a-zA-Z0-9]+"

_label = re.compile(LABEL).fullmatch
_subdomain = re.compile(SUBDOMAIN).fullmatch
_service = re.compile(SERVICE).fullmatch
_qualified = re.compile(QUALIFIED).fullmatch
_config_key = re.compile(CONFIG_KEY).fullmatch
_relaxed_env = re.compile(r"[ -<>-~]+").fullmatch
_port_name = re.compile(r"[-a-z0-9]+").fullmatch


def label_problems(value: str) -> list[str]:
    """An RFC 1123 label: namespaces, containers, volumes."""
    problems = _too_long(value, 63)
    if not _label(value) and _subdomain(value):
        problems.append("must not contain dots")
    elif not _label(value):
        problems.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
            "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
            f"validation is '{LABEL}')"
        )
    return problems


def subdomain_problems(value: str) -> list[str]:
    """An RFC 1123 subdomain: what most objects may be called."""
    problems = _too_long(value, 253)
    if not _subdomain(value):
        problems.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
            f"validation is '{SUBDOMAIN}')"
        )
    return problems


def service_problems(value: str) -> list[str]:
    """An RFC 1035 label: services."""
    problems = _too_long(value, 63)
    if not _service(value):
        problems.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
            "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
            f"regex used for validation is '{SERVICE}')"
        )
    return problems


def path_segment_problems(value: str) -> list[str]:
    """A name that only has to fit into a URL path: roles and their bindings."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in value]


@lru_cache(maxsize=4096)
def is_qualified_name(value: str) -> bool:
    """Whether a text may be a label or annotation key; remembered, because the same keys come again."""
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
    """A label or annotation key, a resource name, a finalizer."""
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


def label_value_problems(value: str) -> list[str]:
    problems = _too_long(value, 63, "bytes")
    if value and not _qualified(value):
        problems.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
            f"'12345', regex used for validation is '({QUALIFIED})?')"
        )
    return problems


def env_name_problems(value: str) -> list[str]:
    """A variable's name: any printable ASCII character but `=`."""
    problems = []
    if not value:
        problems.append("environment variable name must be a non-empty string")
    elif not _relaxed_env(value):
        problems.append(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return problems


def config_key_problems(value: str) -> list[str]:
    """A key of a ConfigMap or Secret."""
    problems = _too_long(value, 253)
    if not _config_key(value):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  "
            f"or 'KEY_NAME',  or 'key-name', regex used for validation is '{CONFIG_KEY}')"
        )
    if value == ".":
        problems.append("must not be '.'")
    if value == "..":
        problems.append("must not be '..'")
    elif value.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def port_name_problems(value: str) -> list[str]:
    """A container port's name."""
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


_BY_KIND: dict[tuple[str, str], Callable[[str], list[str]]] = {
    ("", "Namespace"): label_problems,
    ("", "Service"): label_problems,
    ("rbac.authorization.k8s.io", "Role"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment_problems,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment_problems,
}


def name_problems(group: str, kind: str, value: str) -> list[str]:
    """What is wrong with an object's name, by its kind."""
    return _BY_KIND.get((group, kind), subdomain_problems)(value)


def _too_long(value: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(value.encode()) > limit else []


def _qualified_text(start: str = "a valid label key must") -> str:
    return (
        f"{start} consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        f"'{QUALIFIED}')"
    )
