"""Checks what Argosy relies on for every adapter: `check_framework(MyFramework(), workload)`.

An adapter must be pure, must set all defaults, and must refer only to roles that exist.
"""

import json
import re

import msgspec
from msgspec.structs import replace

from argosy.frameworks.base import Framework
from argosy.workload.model import Workload

MAX_VARIABLE_CHARS = 100_000
"""Linux limits one environment variable to 128 KiB."""
MAX_FILES_CHARS = 200_000
"""Kubernetes limits the annotations of an object to 256 KiB."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NonConformance(Exception):  # noqa: N818 - not an error of this program
    """An adapter, or a job of it, violates a rule; the message says which and how."""


def require(condition: bool, problem: str) -> None:
    """Raise NonConformance with the problem unless the condition holds."""
    if not condition:
        raise NonConformance(problem)


def check_framework(framework: Framework, workload: Workload) -> None:
    """Raise NonConformance if the adapter violates a rule. The workload must be valid for the adapter."""
    require(bool(framework.name), "name: must be set")
    msgspec.convert(dict(workload.options), framework.Options)
    _check_options(framework)
    complete = framework.defaults(workload)
    require(framework.defaults(complete) == complete, "defaults() must be idempotent")
    problems = [str(problem) for problem in framework.check(complete)]
    require(not problems, f"check() rejects the sample: {problems}")
    _check_rules(framework, complete)
    for role in complete.roles.values():
        require(role.policy is not None, f"{role.name}: defaults() must set a policy")
        require(role.depends_on is not None, f"{role.name}: defaults() must set depends_on")
        for index in range(role.replicas):
            _check_injection(framework, complete, role.name, index)


def _check_options(framework: Framework) -> None:
    try:
        msgspec.convert({"noSuchOption": 1}, framework.Options)
    except msgspec.ValidationError:
        return
    raise NonConformance(
        "Options must be declared with forbid_unknown_fields, so that typing errors are reported"
    )


def _check_rules(framework: Framework, workload: Workload) -> None:
    rules = framework.rules(workload)
    named = {name for names in (*rules.succeeded_when, *rules.failed_when) for name in names}
    named |= {*rules.services, *rules.exec_from, *rules.exec_into, *rules.ssh_roles}
    unknown = named - set(workload.roles)
    require(not unknown, f"rules() refers to unknown roles: {sorted(unknown)}")
    require(
        all((*rules.succeeded_when, *rules.failed_when)),
        "rules(): an empty list of roles would end the job at once",
    )


def _check_injection(framework: Framework, workload: Workload, name: str, index: int) -> None:
    role = workload.roles[name]
    ruled = replace(workload, rules=framework.rules(workload))
    injection = framework.inject(ruled, role, index)
    replica = f"{name}-{index}"
    again = framework.inject(ruled, role, index)
    require(injection == again, f"{replica}: inject() must depend only on its arguments")
    for variable, value in injection.env.items():
        valid = _VARIABLE.fullmatch(variable) is not None
        require(valid, f"{replica}: {variable!r} is not a valid variable name")
        require(isinstance(value, str), f"{replica}: {variable} must be a string")
        require(
            len(value) < MAX_VARIABLE_CHARS,
            f"{replica}: {variable} is longer than {MAX_VARIABLE_CHARS} characters",
        )
    require(
        injection.override_env <= set(injection.env), f"{replica}: overrides variables that it does not set"
    )
    require(
        all(path.startswith("/") for path in injection.files), f"{replica}: paths of files must be absolute"
    )
    size = len(json.dumps(dict(injection.files)))
    require(size < MAX_FILES_CHARS, f"{replica}: files are larger than {MAX_FILES_CHARS} characters")
    require(
        {wait.role for wait in injection.depends_on} <= set(workload.roles),
        f"{replica}: waits for an unknown role",
    )
    if injection.remote_exec:
        require(name in ruled.rules.exec_from, f"{replica}: remote exec needs the role in rules().exec_from")
        require(bool(ruled.rules.exec_into), f"{replica}: remote exec needs roles in rules().exec_into")
