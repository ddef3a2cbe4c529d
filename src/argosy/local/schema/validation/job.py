"""Validation of a Job's own fields: its numbers, its indexes and its policies.

Which fields go together is Kubernetes' word for word, for a Job that is accepted here and refused there (or
the other way round) is found out too late.
"""

import re
from collections.abc import Iterator

from argosy.local.schema.errors import (
    OMITTED,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part, parts, text
from argosy.local.schema.validation.metadata import immutable
from argosy.local.schema.validation.names import qualified_name_problems, subdomain_problems

MANY_INDEXES = 100_000
AT_ONCE_OF_MANY = 10_000
MOST_RULES = 20
MOST_EXIT_CODES = 255
MOST_PATTERNS = 20
LONGEST_INDEXES = 64 * 1024
LONGEST_MANAGER = 63
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
STATUSES = ("False", "True", "Unknown")
REPLACEMENTS = ("Failed", "TerminatingOrFailed")
INDEXED_ONLY = "requires indexed completion mode"
_IMMUTABLE = (
    *("selector", "template", "completionMode", "backoffLimitPerIndex", "managedBy"),
    *("podFailurePolicy", "successPolicy"),
)
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def job_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """What is wrong with a Job's spec, its pod template aside."""
    yield from _numbers(spec, path)
    yield from _manager(spec, f"{path}.managedBy")
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        yield from _indexed(spec, path)
    elif mode in (None, "NonIndexed"):
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                yield invalid(f"{path}.{field}", spec[field], INDEXED_ONLY)
    if isinstance(spec.get("podFailurePolicy"), dict):
        yield from _failure_policy(spec, f"{path}.podFailurePolicy")
    if isinstance(spec.get("successPolicy"), dict):
        if mode != "Indexed":
            yield invalid(f"{path}.successPolicy", spec["successPolicy"], INDEXED_ONLY)
        else:
            yield from _success_policy(spec, f"{path}.successPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else REPLACEMENTS
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None and replacement not in allowed:
        yield not_supported(f"{path}.podReplacementPolicy", replacement, allowed)


def restart_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """A Job's pods must be able to end."""
    where = f"{path}.template.spec.restartPolicy"
    policy = part(spec, "template", "spec").get("restartPolicy")
    if policy == "Always":
        yield required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(where, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified')


def job_change(new: Json, old: Json) -> Iterator[FieldError]:
    """What may not change while a Job lives."""
    after, before = part(new, "spec"), part(old, "spec")
    yield from _completions_change(after, before)
    for field in _IMMUTABLE:
        if field == "template" and _template_is_open(old):
            yield from _suspended_change(after, before)
        else:
            yield from immutable(f"spec.{field}", after.get(field), before.get(field))


def _template_is_open(job: Json) -> bool:
    """Whether a Job waits, with no pods that were made by its template."""
    if part(job, "spec").get("suspend") is not True:
        return False
    status = part(job, "status")
    started = text(status, "startTime") and not any(
        text(one, "type") == "Suspended" and text(one, "status") == "True"
        for one in parts(status, "conditions")
    )
    return not started and not status.get("active")


def _suspended_change(after: Json, before: Json) -> Iterator[FieldError]:
    """What may change in the template of a Job that waits: where its pods go and what they ask for."""
    new, old = (_fixed_template(part(spec, "template", "spec")) for spec in (after, before))
    yield from immutable("spec.template.spec", new, old)


def _fixed_template(spec: Json) -> Json:
    free = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    fixed = {name: value for name, value in spec.items() if name not in free}
    for field in ("containers", "initContainers"):
        if field in spec:
            containers = parts(spec, field)
            fixed[field] = [{k: v for k, v in one.items() if k != "resources"} for one in containers]
    return fixed


def index_errors(indexes: str, completions: int) -> tuple[int, str]:
    """How many indexes a text like `0-2,5` names, and what is wrong with it; one or the other is nothing."""
    last, total = -1, 0
    for piece in indexes.split(",") if indexes else ():
        limits = piece.split("-")
        if len(limits) > 2:
            why = (
                "violates the requirement that an index interval can have at most two parts separated by '-'"
            )
            return 0, f'the fragment "{piece}" {why}'
        for limit in limits:
            if not re.fullmatch(r"\+?[0-9]+", limit):
                return 0, f'cannot convert string to integer for index: "{limit}"'
            if int(limit) >= completions:
                return 0, f'too large index: "{limit}"'
        first, end = int(limits[0]), int(limits[-1])
        if len(limits) == 2 and first >= end:
            return 0, f"non-increasing order, previous: {first}, current: {end}"
        if last >= first:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        last, total = end, total + end - first + 1
    return total, ""


def _numbers(spec: Json, path: str) -> Iterator[FieldError]:
    for field in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{path}.{field}", value, "must be greater than or equal to 0")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")


def _manager(spec: Json, path: str) -> Iterator[FieldError]:
    manager = spec.get("managedBy")
    if not isinstance(manager, str):
        return
    if not manager:
        yield required(path)
    host, _, rest = manager.partition("/")
    if manager and not (host and rest):
        yield invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    elif manager:
        for problem in subdomain_problems(host):
            yield invalid(path, host, problem)
        if not _PATH.fullmatch(rest):
            told = f"Invalid path (regex used for validation is '{_PATH.pattern}')"
            yield invalid(path, rest, told)
    if len(manager) > LONGEST_MANAGER:
        yield too_long(path, LONGEST_MANAGER)


def _indexed(spec: Json, path: str) -> Iterator[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    most = spec.get("maxFailedIndexes")
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if isinstance(parallelism, int) and parallelism > MANY_INDEXES:
        told = f"must be less than or equal to {MANY_INDEXES} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, told)
    if isinstance(completions, int) and isinstance(most, int) and most > completions:
        yield invalid(f"{path}.maxFailedIndexes", most, "must be less than or equal to completions")
    if isinstance(most, int) and most > MANY_INDEXES:
        yield invalid(f"{path}.maxFailedIndexes", most, f"must be less than or equal to {MANY_INDEXES}")
    by_index = spec.get("backoffLimitPerIndex") is not None
    if not (isinstance(completions, int) and completions > MANY_INDEXES and by_index):
        return
    if most is None:
        told = f"must be specified when completions is above {MANY_INDEXES}"
        yield required(f"{path}.maxFailedIndexes", told)
    told = (
        f"must be less than or equal to {AT_ONCE_OF_MANY} when completions are above {MANY_INDEXES} "
        "and used with backoff limit per index"
    )
    for field, value in (("parallelism", parallelism), ("maxFailedIndexes", most)):
        if isinstance(value, int) and value > AT_ONCE_OF_MANY:
            yield invalid(f"{path}.{field}", value, told)


def _failure_policy(spec: Json, path: str) -> Iterator[FieldError]:
    rules = parts(spec, "podFailurePolicy", "rules")
    if len(rules) > MOST_RULES:
        yield too_many(f"{path}.rules", len(rules), MOST_RULES)
    inner = part(spec, "template", "spec")
    names = {text(each, "name") for field in ("containers", "initContainers") for each in parts(inner, field)}
    for number, rule in enumerate(rules):
        yield from _failure_rule(spec, rule, f"{path}.rules[{number}]", names)


def _failure_rule(spec: Json, rule: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    action = text(rule, "action")
    if not action:
        yield required(f"{path}.action", _values(ACTIONS))
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            yield invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    elif action not in ACTIONS:
        yield not_supported(f"{path}.action", action, ACTIONS)
    codes, patterns = rule.get("onExitCodes"), parts(rule, "onPodConditions")
    if isinstance(codes, dict):
        yield from _exit_codes(codes, f"{path}.onExitCodes", names)
    yield from _patterns(patterns, f"{path}.onPodConditions")
    if codes is not None and patterns:
        yield invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not patterns:
        yield invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _patterns(patterns: list[Json], path: str) -> Iterator[FieldError]:
    if len(patterns) > MOST_PATTERNS:
        yield too_many(path, len(patterns), MOST_PATTERNS)
    for number, pattern in enumerate(patterns):
        kind, status = text(pattern, "type"), text(pattern, "status")
        for problem in qualified_name_problems(kind):
            yield invalid(f"{path}[{number}].type", kind, problem)
        if not status:
            yield required(f"{path}[{number}].status", _values(STATUSES))
        elif status not in STATUSES:
            yield not_supported(f"{path}[{number}].status", status, STATUSES)


def _exit_codes(codes: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    operator, container = text(codes, "operator"), codes.get("containerName")
    if not operator:
        yield required(f"{path}.operator", _values(OPERATORS))
    elif operator not in OPERATORS:
        yield not_supported(f"{path}.operator", operator, OPERATORS)
    if container is not None and container not in names:
        told = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", container, told)
    listed = codes.get("values")
    values = [value for value in listed if isinstance(value, int)] if isinstance(listed, list) else []
    if not values:
        yield invalid(f"{path}.values", listed, "at least one value is required")
    elif len(values) > MOST_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), MOST_EXIT_CODES)
    for number, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{number}]", value, "must not be 0 for the In operator")
        if value in values[:number]:
            yield duplicate(f"{path}.values[{number}]", value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _success_policy(spec: Json, path: str) -> Iterator[FieldError]:
    rules = parts(spec, "successPolicy", "rules")
    if not rules:
        told = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{path}.rules", told)
    if len(rules) > MOST_RULES:
        yield too_many(f"{path}.rules", len(rules), MOST_RULES)
    completions = spec.get("completions")
    for number, rule in enumerate(rules):
        limit = completions if isinstance(completions, int) else 0
        yield from _success_rule(rule, f"{path}.rules[{number}]", limit)


def _success_rule(rule: Json, path: str, completions: int) -> Iterator[FieldError]:
    indexes, count, named = rule.get("succeededIndexes"), rule.get("succeededCount"), 0
    if indexes is None and count is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if isinstance(indexes, str):
        if len(indexes) > LONGEST_INDEXES:
            yield too_long(f"{path}.succeededIndexes", LONGEST_INDEXES)
        named, problem = index_errors(indexes, completions)
        if problem:
            yield invalid(f"{path}.succeededIndexes", indexes, f"error parsing succeededIndexes: {problem}")
    if not isinstance(count, int):
        return
    where, most = f"{path}.succeededCount", "must be less than or equal to"
    if count < 0:
        yield invalid(where, count, "must be greater than or equal to 0")
    if count > completions:
        yield invalid(where, count, f"{most} {completions} (the number of specified completions)")
    if indexes is not None and count > named:
        told = f"{most} {named} (the number of indexes in the specified succeededIndexes field)"
        yield invalid(where, count, told)


def _completions_change(after: Json, before: Json) -> Iterator[FieldError]:
    """Completions of an indexed Job may change together with its parallelism, to the same number."""
    new, old = after.get("completions"), before.get("completions")
    if after.get("completionMode") != "Indexed":
        yield from immutable("spec.completions", new, old)
    elif new not in (old, None, after.get("parallelism")):
        yield invalid("spec.completions", new, "can only be modified in tandem with spec.parallelism")


def _values(allowed: tuple[str, ...]) -> str:
    """Go's print of a list of texts."""
    return "valid values: [" + " ".join(f'"{value}"' for value in allowed) + "]"
