"""What every adapter must be, whatever its framework: `check_framework(MyFramework(), workload)`.

It holds an adapter to what the rest of Argosy relies on: pure, complete, and speaking only of roles that
exist.
"""

import json
import re

import msgspec
from msgspec.structs import replace

from argosy.frameworks.base import Framework
from argosy.workload.model import Workload

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_framework(framework: Framework, workload: Workload) -> None:
    """Raises AssertionError with what is wrong. The workload must be one that the adapter accepts."""
    assert framework.name, "an adapter has a name"
    msgspec.convert(dict(workload.options), framework.Options)
    _check_options(framework)
    complete = framework.defaults(workload)
    assert framework.defaults(complete) == complete, "defaults fill in what is missing, once"
    problems = [str(problem) for problem in framework.check(complete)]
    assert not problems, f"check() finds {problems}"
    _check_rules(framework, complete)
    for role in complete.roles.values():
        assert role.policy is not None, f"{role.name}: defaults() leaves no policy open"
        assert role.depends_on is not None, f"{role.name}: defaults() leaves no dependencies open"
        for index in range(role.replicas):
            _check_injection(framework, complete, role.name, index)


def _check_options(framework: Framework) -> None:
    try:
        msgspec.convert({"noSuchOption": 1}, framework.Options)
    except msgspec.ValidationError:
        return
    raise AssertionError(
        "Options must be declared with forbid_unknown_fields: a typing error is not to be ignored"
    )


def _check_rules(framework: Framework, workload: Workload) -> None:
    rules = framework.rules(workload)
    named = {name for names in (*rules.succeeded_when, *rules.failed_when) for name in names}
    named |= {*rules.services, *rules.exec_from, *rules.exec_into, *rules.ssh_among}
    unknown = named - set(workload.roles)
    assert not unknown, f"rules() speaks of roles that do not exist: {sorted(unknown)}"
    assert all((*rules.succeeded_when, *rules.failed_when)), "an empty list of roles would be true at once"


def _check_injection(framework: Framework, workload: Workload, name: str, index: int) -> None:
    role = workload.roles[name]
    ruled = replace(workload, rules=framework.rules(workload))
    injection = framework.inject(ruled, role, index)
    place = f"{name}-{index}"
    assert injection == framework.inject(ruled, role, index), (
        f"{place}: inject() is a function of its arguments"
    )
    for variable, value in injection.env.items():
        assert _VARIABLE.fullmatch(variable), f"{place}: {variable!r} is no name for a variable"
        assert isinstance(value, str), f"{place}: {variable} is not a string"
        assert len(value) < 100_000, f"{place}: {variable} is longer than a process can be given"
    assert injection.forced <= set(injection.env), f"{place}: forces variables that it does not set"
    assert all(path.startswith("/") for path in injection.files), f"{place}: paths of files are absolute"
    assert len(json.dumps(dict(injection.files))) < 200_000, f"{place}: files are larger than a pod can carry"
    assert {wait.role for wait in injection.waits} <= set(workload.roles), f"{place}: waits for nobody"
    if injection.remote_start:
        assert name in ruled.rules.exec_from, f"{place}: remote start needs the role in rules().exec_from"
        assert ruled.rules.exec_into, f"{place}: remote start needs roles in rules().exec_into"
