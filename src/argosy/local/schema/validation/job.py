"""Validates the fields of a Job except its pod template: numbers, indexes and the pod failure policy.

The rules are those of kube-apiserver, so that a Job that is valid here is valid on a cluster. Success
policies, limits per index and other managers are not supported, and rejected.
"""

from collections.abc import Iterator

from argosy.local.schema.errors import (
    OMITTED,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_many,
    unsupported,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str
from argosy.local.schema.validation.metadata import immutable
from argosy.local.schema.validation.names import qualified_name_problems

MAX_INDEXES = 100_000
MAX_RULES = 20
MAX_EXIT_CODES = 255
MAX_PATTERNS = 20
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
STATUSES = ("False", "True", "Unknown")
REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_IMMUTABLE = ("selector", "template", "completionMode", "podFailurePolicy")


def job_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of a Job's spec, without those of its pod template."""
    yield from _numbers(spec, path)
    mode = spec.get("completionMode")
    yield from unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        yield from _validate_indexed(spec, path)
    for field in ("backoffLimitPerIndex", "managedBy", "maxFailedIndexes", "successPolicy"):
        if spec.get(field) is not None:
            yield forbidden(f"{path}.{field}", "not supported by the local control plane")
    if isinstance(spec.get("podFailurePolicy"), dict):
        yield from _failure_policy(spec, f"{path}.podFailurePolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else REPLACEMENTS
    replacement = spec.get("podReplacementPolicy")
    yield from unsupported(f"{path}.podReplacementPolicy", replacement, allowed)


def restart_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of the restart policy: the pods of a Job must be able to end."""
    where = f"{path}.template.spec.restartPolicy"
    policy = get_map(spec, "template", "spec").get("restartPolicy")
    if policy == "Always":
        yield required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(where, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified')


def job_change(new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the errors of a change of immutable fields."""
    after, before = get_map(new, "spec"), get_map(old, "spec")
    yield from _completions_change(after, before)
    for field in _IMMUTABLE:
        if field == "template" and _template_is_open(old):
            yield from _suspended_change(after, before)
        else:
            yield from immutable(f"spec.{field}", after.get(field), before.get(field))


def _template_is_open(job: Json) -> bool:
    """Return True if the template can be changed: the Job is suspended and has no pods."""
    if get_map(job, "spec").get("suspend") is not True:
        return False
    status = get_map(job, "status")
    started = get_str(status, "startTime") and not any(
        get_str(condition, "type") == "Suspended" and get_str(condition, "status") == "True"
        for condition in get_maps(status, "conditions")
    )
    return not started and not status.get("active")


def _suspended_change(after: Json, before: Json) -> Iterator[FieldError]:
    """Yield the errors of a new template of a suspended Job: only scheduling and resources can change."""
    new, old = (_fixed_template(get_map(spec, "template", "spec")) for spec in (after, before))
    yield from immutable("spec.template.spec", new, old)


def _fixed_template(spec: Json) -> Json:
    free = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    fixed = {name: value for name, value in spec.items() if name not in free}
    for field in ("containers", "initContainers"):
        if field in spec:
            fixed[field] = [{k: v for k, v in c.items() if k != "resources"} for c in get_maps(spec, field)]
    return fixed


def _numbers(spec: Json, path: str) -> Iterator[FieldError]:
    for field in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{path}.{field}", value, "must be greater than or equal to 0")


def _validate_indexed(spec: Json, path: str) -> Iterator[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if isinstance(parallelism, int) and parallelism > MAX_INDEXES:
        message = f"must be less than or equal to {MAX_INDEXES} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, message)


def _failure_policy(spec: Json, path: str) -> Iterator[FieldError]:
    rules = get_maps(spec, "podFailurePolicy", "rules")
    if len(rules) > MAX_RULES:
        yield too_many(f"{path}.rules", len(rules), MAX_RULES)
    inner = get_map(spec, "template", "spec")
    names = {
        get_str(container, "name")
        for field in ("containers", "initContainers")
        for container in get_maps(inner, field)
    }
    for number, rule in enumerate(rules):
        yield from _failure_rule(rule, f"{path}.rules[{number}]", names)


def _failure_rule(rule: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    action = get_str(rule, "action")
    if not action:
        yield required(f"{path}.action", _one_of(ACTIONS))
    elif action == "FailIndex":
        yield invalid(f"{path}.action", action, "not supported by the local control plane")
    elif action not in ACTIONS:
        yield not_supported(f"{path}.action", action, ACTIONS)
    codes, patterns = rule.get("onExitCodes"), get_maps(rule, "onPodConditions")
    if isinstance(codes, dict):
        yield from _exit_codes(codes, f"{path}.onExitCodes", names)
    yield from _patterns(patterns, f"{path}.onPodConditions")
    if codes is not None and patterns:
        yield invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not patterns:
        yield invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _patterns(patterns: list[Json], path: str) -> Iterator[FieldError]:
    if len(patterns) > MAX_PATTERNS:
        yield too_many(path, len(patterns), MAX_PATTERNS)
    for number, pattern in enumerate(patterns):
        kind, status = get_str(pattern, "type"), get_str(pattern, "status")
        yield from invalid_each(f"{path}[{number}].type", kind, qualified_name_problems(kind))
        if not status:
            yield required(f"{path}[{number}].status", _one_of(STATUSES))
        elif status not in STATUSES:
            yield not_supported(f"{path}[{number}].status", status, STATUSES)


def _exit_codes(codes: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    operator, container = get_str(codes, "operator"), codes.get("containerName")
    if not operator:
        yield required(f"{path}.operator", _one_of(OPERATORS))
    elif operator not in OPERATORS:
        yield not_supported(f"{path}.operator", operator, OPERATORS)
    if container is not None and container not in names:
        message = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", container, message)
    listed = codes.get("values")
    values = [value for value in listed if isinstance(value, int)] if isinstance(listed, list) else []
    if not values:
        yield invalid(f"{path}.values", listed, "at least one value is required")
    elif len(values) > MAX_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), MAX_EXIT_CODES)
    for number, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{number}]", value, "must not be 0 for the In operator")
        if value in values[:number]:
            yield duplicate(f"{path}.values[{number}]", value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _completions_change(after: Json, before: Json) -> Iterator[FieldError]:
    """Yield the errors of a change of completions: with indexes they can change together with parallelism."""
    new, old = after.get("completions"), before.get("completions")
    if after.get("completionMode") != "Indexed":
        yield from immutable("spec.completions", new, old)
    elif new not in (old, None, after.get("parallelism")):
        yield invalid("spec.completions", new, "can only be modified in tandem with spec.parallelism")


def _one_of(allowed: tuple[str, ...]) -> str:
    return f"must be one of {', '.join(allowed)}"
