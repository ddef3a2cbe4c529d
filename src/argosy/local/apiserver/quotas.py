"""Quotas: nothing is created beyond the count that a namespace may have.

As in Kubernetes a quota is judged by its status, which a controller keeps true. What a creation uses is
written together with what is created, so that nobody sees one without the other; whoever counts the objects
and writes at the version of the quota that it read, cannot count wrong.
"""

import asyncio
from collections.abc import Sequence

from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Api, Call
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import StatusError, forbidden, qualified
from argosy.local.apiserver.store import Stored
from argosy.local.schema.codec.quantity import canonical, value_of
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part
from argosy.local.schema.validation.quota import COUNT, COUNTED

_QUOTAS = "resourcequotas"
_MANAGER = "kube-apiserver"
_UNCOUNTED = frozenset({"events"})


def charges(call: Call, name: str) -> Sequence[Json]:
    """The quotas with what one more object of this kind uses; 403 when one of them would be exceeded."""
    namespaces = call.api.store.collection(_QUOTAS).namespaces
    if not namespaces or call.namespace not in namespaces or call.served.storage in _UNCOUNTED:
        return ()
    counted = _names(call.served)
    found = []
    for each in call.api.store.collection(_QUOTAS).listed(call.namespace):
        head = call.api.store.head(_QUOTAS, call.namespace, each.name)
        quota = head.decoded() if head is not None else {}
        if wanted := [key for key in counted if key in part(quota, "status", "hard")]:
            found.append(_charged(call, name, quota, each.name, wanted))
    return found


def write_charges(api: Api, charged: Sequence[Json]) -> asyncio.Future[list[Stored]]:
    """Write the quotas; to be called at the same moment as the object is written."""
    served = api.registry.builtin("", _QUOTAS)
    return asyncio.gather(*[api.put_soon(served, quota) for quota in charged])


def _names(served: Served) -> list[str]:
    names = [f"{COUNT}{qualified(served.group, served.plural)}"]
    return [*names, served.plural] if not served.group and served.plural in COUNTED else names


def _charged(call: Call, name: str, quota: Json, quota_name: str, wanted: list[str]) -> Json:
    hard, used = part(quota, "status", "hard"), part(quota, "status", "used")
    if any(key not in used for key in wanted):
        why = f"status unknown for quota: {quota_name}, resources: {','.join(sorted(wanted))}"
        raise _refused(call, name, why)
    after = {key: canonical(str(value_of(str(used[key])) + 1)) for key in wanted}
    exceeded = sorted(key for key in wanted if value_of(after[key]) > value_of(str(hard[key])))
    if exceeded:
        asked, there, most = (
            ",".join(f"{key}={amounts[key]}" for key in exceeded)
            for amounts in (dict.fromkeys(exceeded, 1), used, hard)
        )
        why = f"exceeded quota: {quota_name}, requested: {asked}, used: {there}, limited: {most}"
        raise _refused(call, name, why)
    new: Json = {**quota, "metadata": dict(part(quota, "metadata"))}
    new["status"] = {**part(quota, "status"), "used": {**used, **after}}
    served = call.api.registry.builtin("", _QUOTAS)
    return object_schema.track_update(quota, new, served, _MANAGER, "status")


def _refused(call: Call, name: str, why: str) -> StatusError:
    return forbidden(call.served.group, call.served.plural, name, why)
