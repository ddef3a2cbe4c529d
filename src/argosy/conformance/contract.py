"""What every adapter must be, whatever its framework: `check_framework(MyFramework(), workload)`.

It checks what the rest of Argosy relies on: an adapter is pure, complete, and speaks only of roles that
exist.
"""

import json
import re

import msgspec
from msgspec.structs import replace

from argosy.frameworks.base import Framework
from argosy.workload.model import Workload

MAX_VARIABLE_CHARS = 100_000
"""Near the most that a process can be given in one variable."""
MAX_FILES_CHARS = 200_000
"""Near the most that a pod can carry in its annotations."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NonConformance(Exception):  # noqa: N818 - it reads as what it is
    """An adapter, or a run of it, breaks a rule; the text says which and how."""


def require(condition: bool, problem: str) -> None:
    """Raise NonConformance with the problem unless the condition holds."""
    if not condition:
        raise NonConformance(problem)


def check_framework(framework: Framework, workload: Workload) -> None:
    """Raise NonConformance with what is wrong. The workload must be one that the adapter accepts."""
    require(bool(framework.name), "an adapter has a name")
    msgspec.convert(dict(workload.options), framework.Options)
    _check_options(framework)
    complete = framework.defaults(workload)
    require(framework.defaults(complete) == complete, "defaults fill in what is missing, once")
    problems = [str(problem) for problem in framework.check(complete)]
    require(not problems, f"check() finds {problems}")
    _check_rules(framework, complete)
    for role in complete.roles.values():
        require(role.policy is not None, f"{role.name}: defaults() leaves no policy open")
        require(role.depends_on is not None, f"{role.name}: defaults() leaves no dependencies open")
        for index in range(role.replicas):
            _check_injection(framework, complete, role.name, index)


def _check_options(framework: Framework) -> None:
    try:
        msgspec.convert({"noSuchOption": 1}, framework.Options)
    except msgspec.ValidationError:
        return
    raise NonConformance(
        "Options must be declared with forbid_unknown_fields: a typing error is not to be ignored"
    )


def _check_rules(framework: Framework, workload: Workload) -> None:
    rules = framework.rules(workload)
    named = {name for names in (*rules.succeeded_when, *rules.failed_when) for name in names}
    named |= {*rules.services, *rules.exec_from, *rules.exec_into, *rules.ssh_among}
    unknown = named - set(workload.roles)
    require(not unknown, f"rules() speaks of roles that do not exist: {sorted(unknown)}")
    require(all((*rules.succeeded_when, *rules.failed_when)), "an empty list of roles would be true at once")


def _check_injection(framework: Framework, workload: Workload, name: str, index: int) -> None:
    role = workload.roles[name]
    ruled = replace(workload, rules=framework.rules(workload))
    injection = framework.inject(ruled, role, index)
    place = f"{name}-{index}"
    again = framework.inject(ruled, role, index)
    require(injection == again, f"{place}: inject() is a function of its arguments")
    for variable, value in injection.env.items():
        valid = _VARIABLE.fullmatch(variable) is not None
        require(valid, f"{place}: {variable!r} is no name for a variable")
        require(isinstance(value, str), f"{place}: {variable} is not a string")
        require(len(value) < MAX_VARIABLE_CHARS, f"{place}: {variable} is longer than a process can be given")
    require(injection.forced <= set(injection.env), f"{place}: forces variables that it does not set")
    require(all(path.startswith("/") for path in injection.files), f"{place}: paths of files are absolute")
    size = len(json.dumps(dict(injection.files)))
    require(size < MAX_FILES_CHARS, f"{place}: files are larger than a pod can carry")
    require({wait.role for wait in injection.waits} <= set(workload.roles), f"{place}: waits for nobody")
    if injection.remote_exec:
        require(name in ruled.rules.exec_from, f"{place}: remote exec needs the role in rules().exec_from")
        require(bool(ruled.rules.exec_into), f"{place}: remote exec needs roles in rules().exec_into")
