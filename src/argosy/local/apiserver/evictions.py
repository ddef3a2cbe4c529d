"""Eviction: deletes a pod if its PodDisruptionBudget allows it.

The disruption controller (`local.controllers.disruption`) writes the status of a budget; an eviction uses up
one of the allowed disruptions and records the pod, until the controller has observed the deletion.
"""

import msgspec

from argosy.local.apiserver import delete as deletion
from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import read_object
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.options import write_options
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import StatusError, bad_request, forbidden, too_many_requests
from argosy.local.apiserver.subresources import CREATED
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.model import Json
from argosy.local.schema.selectors import selector_from
from argosy.local.schema.unstructured import ensure, get_int, get_map, get_maps, get_str, labels_of

MAX_UNCONFIRMED_PODS = 2000
RETRY_SECONDS = 10
_MANAGER = "kube-apiserver"
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


async def evict(call: Call) -> Response:
    eviction = await read_object(call.request, "Eviction")
    if get_str(eviction, "metadata", "name") != call.target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = _delete_options(call, eviction)
    pod = call.head().decoded()
    if not _ignores_budgets(pod):
        await _use_budget(call, pod, dry=bool(options.dry_run))
    await _delete(call, options)
    return reply(CREATED, 201)


def _delete_options(call: Call, eviction: Json) -> deletion.DeleteOptions:
    try:
        options = msgspec.convert(get_map(eviction, "deleteOptions"), deletion.DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"Eviction: {error}") from error
    if write_options(call.request, "CreateOptions").dry_run:
        options = msgspec.structs.replace(options, dry_run=["All"])
    return options


def _ignores_budgets(pod: Json) -> bool:
    """Return True if budgets do not apply: the pod has not started, has ended, or is terminating."""
    phase, deleted = get_str(pod, "status", "phase"), get_str(pod, "metadata", "deletionTimestamp")
    return phase in ("Succeeded", "Failed", "Pending") or bool(deleted)


async def _use_budget(call: Call, pod: Json, *, dry: bool) -> None:
    served = call.api.registry.find("policy", "v1", "poddisruptionbudgets")
    assert served is not None
    budgets = _budgets(call, served, pod)
    if len(budgets) > 1:
        raise StatusError(500, "", _SEVERAL)
    if not budgets or _is_unhealthy_and_evictable(budgets[0], pod):
        return
    before = budgets[0]
    _check(before)
    budget = _with_disruption(before, get_str(pod, "metadata", "name"))
    if not dry:
        await call.api.put(served, object_schema.track_update(before, budget, served, _MANAGER, "status"))


def _budgets(call: Call, served: Served, pod: Json) -> list[Json]:
    """Return the newest versions of the budgets that select the pod."""
    labels = labels_of(pod, "metadata", "labels")
    matching = []
    for stored in call.api.store.collection(served.storage).listed(call.namespace):
        head = call.api.head(served, stored.namespace, stored.name)
        budget = head.decoded() if head is not None else {}
        selector = get_map(budget, "spec").get("selector")
        if isinstance(selector, dict) and selector_from(selector).matches(labels):
            matching.append(budget)
    return matching


def _is_unhealthy_and_evictable(budget: Json, pod: Json) -> bool:
    """Return True if the pod is not ready, so that its eviction does not use up the budget."""
    conditions = get_maps(pod, "status", "conditions")
    if any(get_str(item, "type") == "Ready" and get_str(item, "status") == "True" for item in conditions):
        return False
    if get_str(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, wanted = (get_int(budget, "status", name) for name in ("currentHealthy", "desiredHealthy"))
    return healthy >= wanted > 0


def _check(budget: Json) -> None:
    """Raise 429 if the budget allows no eviction; with Retry-After if its status is not up to date."""
    name, status = get_str(budget, "metadata", "name"), get_map(budget, "status")
    if get_int(status, "observedGeneration") < get_int(budget, "metadata", "generation"):
        raise _budget_violation(
            f"The disruption budget {name} is still being processed by the server.", RETRY_SECONDS
        )
    allowed = get_int(status, "disruptionsAllowed")
    if allowed < 0:
        why = "pdb disruptions allowed is negative"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if len(get_map(status, "disruptedPods")) > MAX_UNCONFIRMED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed > 0:
        return
    condition = next(
        (c for c in get_maps(status, "conditions") if get_str(c, "type") == "DisruptionAllowed"), {}
    )
    if get_str(condition, "reason") == "SyncFailed":
        why = "does not allow evicting pods currently because it failed sync"
        raise _budget_violation(f"The disruption budget {name} {why}: {get_str(condition, 'message')}")
    healthy, wanted = get_int(status, "currentHealthy"), get_int(status, "desiredHealthy")
    raise _budget_violation(
        f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
    )


def _budget_violation(why: str, retry_seconds: int = 0) -> StatusError:
    return too_many_requests(_VIOLATED, retry_seconds, [{"reason": "DisruptionBudget", "message": why}])


def _with_disruption(budget: Json, pod: str) -> Json:
    """Return the budget with one allowed disruption less, and the pod recorded."""
    status = get_map(budget, "status")
    allowed = get_int(status, "disruptionsAllowed") - 1
    disrupted = {**get_map(status, "disruptedPods"), pod: now_text()}
    changed: Json = {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}
    if allowed == 0:
        changed["conditions"] = _with_condition(
            get_maps(status, "conditions"),
            {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": get_int(status, "observedGeneration"),
                "lastTransitionTime": now_text(),
                "reason": "InsufficientPods",
                "message": "",
            },
        )
    return {**budget, "status": changed}


async def _delete(call: Call, options: deletion.DeleteOptions) -> None:
    """Write the reason into the status of the pod, then delete it."""
    head = call.head()
    pod = head.decoded()
    if not options.dry_run:
        deletion.check_preconditions(call, head, pod, options)
        status = ensure(pod, "status")
        status["conditions"] = _with_condition(
            get_maps(status, "conditions"),
            {
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now_text(),
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            },
        )
        await call.api.put(call.served, pod)
        if options.preconditions is not None:  # checked before the write above changed the version
            met = msgspec.structs.replace(options.preconditions, resource_version=None)
            options = msgspec.structs.replace(options, preconditions=met)
    await deletion.delete(call, call.head(), options)


def _with_condition(conditions: list[Json], wanted: Json) -> list[Json]:
    """Return the conditions with one replaced or added; its transition time changes with its status."""
    changed = []
    for condition in conditions:
        if condition.get("type") == wanted["type"]:
            if condition.get("status") == wanted["status"]:
                wanted = {**wanted, "lastTransitionTime": condition.get("lastTransitionTime")}
            changed.append(wanted)
        else:
            changed.append(condition)
    return changed if wanted in changed else [*changed, wanted]
