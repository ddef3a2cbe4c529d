"""Validates kinds with a pod template, PodDisruptionBudgets, and changes of their immutable fields."""

from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, forbidden, invalid, not_supported, required, unsupported
from argosy.local.schema.model import Json
from argosy.local.schema.selectors import selector_from
from argosy.local.schema.unstructured import get_map, get_maps, get_str
from argosy.local.schema.validation.deployment import amount_errors, percentage_of, rollout_errors
from argosy.local.schema.validation.job import job_change, job_errors, restart_errors
from argosy.local.schema.validation.metadata import immutable, map_errors
from argosy.local.schema.validation.names import label_problems
from argosy.local.schema.validation.pod import template_spec_errors


def at_least(path: str, value: object, least: int) -> Iterator[FieldError]:
    if isinstance(value, int) and value < least:
        yield invalid(path, value, f"must be greater than or equal to {least}")


def _template_errors(spec: Json) -> Iterator[FieldError]:
    """Yield the errors of a selector and of a template whose pods always restart.

    As in Kubernetes, the messages for a ReplicaSet are those for a Deployment.
    """
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    elif isinstance(selector, dict) and not any(selector.values()):
        yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
    if wrong := list(selector_errors(selector, "spec.selector")):
        yield from wrong
        yield invalid("spec.selector", selector, "invalid label selector")
        return
    labels = get_map(spec, "template", "metadata").get("labels")
    if not _selects(selector, labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    template = get_map(spec, "template")
    yield from _template_metadata(template, "spec.template")
    inner = get_map(template, "spec")
    yield from template_spec_errors(inner, "spec.template.spec")
    policy = inner.get("restartPolicy")
    if policy in ("Never", "OnFailure"):
        yield not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if "activeDeadlineSeconds" in inner:
        message = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield forbidden("spec.template.spec.activeDeadlineSeconds", message)


def selector_errors(selector: object, path: str) -> Iterator[FieldError]:
    """Yield the errors of a label selector."""
    yield from map_errors(get_map(selector, "matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(get_maps(selector, "matchExpressions")):
        where, operator = f"{path}.matchExpressions[{index}]", get_str(expression, "operator")
        if operator in ("In", "NotIn") and not expression.get("values"):
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and expression.get("values"):
            message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{where}.values", message)
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield invalid(f"{where}.operator", operator, "not a valid selector operator")


def _selects(selector: object, labels: object) -> bool:
    """Return True if a selector matches labels; an invalid one, which has its own errors, matches."""
    if selector is None:
        return False
    if isinstance(selector, dict) and not any(selector.values()):
        return True
    if any(selector_errors(selector, "")):
        return True
    present = {k: str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}
    return selector_from(selector if isinstance(selector, dict) else None).matches(present)


def _template_metadata(template: Json, path: str) -> Iterator[FieldError]:
    metadata = get_map(template, "metadata")
    yield from map_errors(metadata.get("labels"), f"{path}.labels")
    yield from map_errors(metadata.get("annotations"), f"{path}.annotations")


def deployment(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    yield from at_least("spec.replicas", spec.get("replicas"), 0)
    yield from _template_errors(spec)
    yield from rollout_errors(spec)


def replica_set(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    yield from at_least("spec.replicas", spec.get("replicas"), 0)
    yield from at_least("spec.minReadySeconds", spec.get("minReadySeconds"), 0)
    yield from _template_errors(spec)


def selector_change(new: Json, old: Json) -> Iterator[FieldError]:
    return immutable(
        "spec.selector", get_map(new, "spec").get("selector"), get_map(old, "spec").get("selector")
    )


def budget_errors(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        amount = spec.get(field)
        yield from amount_errors(f"spec.{field}", amount)
        if isinstance(amount, str) and percentage_of(amount) > 100:
            yield invalid(f"spec.{field}", amount, "must not be greater than 100%")
    if spec.get("selector") is not None:
        yield from selector_errors(spec["selector"], "spec.selector")
    policy = "unhealthyPodEvictionPolicy"
    yield from unsupported(f"spec.{policy}", spec.get(policy), ("AlwaysAllow", "IfHealthyBudget"))


def job(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    yield from _indexed_name(obj)
    manual, made = spec.get("manualSelector") is True, bool(get_str(obj, "metadata", "uid"))
    if spec.get("selector") is not None and made and not manual:
        yield from _validate_generated(obj, spec["selector"], get_map(spec, "template", "metadata", "labels"))
    yield from _whole_job_spec(obj)


def job_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the errors of an update of a Job."""
    yield from _whole_job_spec(new)
    yield from job_change(new, old)


def _whole_job_spec(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    yield from job_errors(spec, "spec")
    template = get_map(spec, "template")
    yield from _template_metadata(template, "spec.template")
    yield from template_spec_errors(get_map(template, "spec"), "spec.template.spec")
    yield from restart_errors(spec, "spec")
    selector, labels = spec.get("selector"), get_map(spec, "template", "metadata").get("labels")
    made = bool(get_str(obj, "metadata", "uid"))
    if selector is None and made:
        yield required("spec.selector")
    yield from selector_errors(selector, "spec.selector")
    if (selector is None and made) or (selector is not None and not _selects(selector, labels)):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _indexed_name(obj: Json) -> Iterator[FieldError]:
    """Yield the error of the name of an Indexed Job: with an index it must be a valid host name."""
    spec, name = get_map(obj, "spec"), get_str(obj, "metadata", "name")
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed" or not isinstance(completions, int) or completions <= 0:
        return
    longest = f"{name}-{completions - 1}"
    if label_problems(longest):
        message = f"will not able to create pod with invalid DNS label: {longest}"
        yield invalid("metadata.name", name, message)


def _validate_generated(obj: Json, selector: object, labels: Json) -> Iterator[FieldError]:
    """Yield the errors of the labels and the selector that the server generates."""
    uid, name = get_str(obj, "metadata", "uid"), get_str(obj, "metadata", "name")
    own = {"controller-uid": uid, "job-name": name}
    own |= {f"batch.kubernetes.io/{key}": value for key, value in own.items()}
    for key, value in own.items():
        where = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield required(where, f"must be '{value}'")
        elif labels[key] != value:
            yield invalid(where, labels, f"must be '{value}'")
    if not _selects(selector, own):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")
