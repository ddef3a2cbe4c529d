"""Enforces ResourceQuotas when objects are created.

As in Kubernetes the status of a quota counts, which a controller keeps up to date. The usage of a new object
is written at the same time as the object, so that clients see both or neither; a controller that counts
objects and writes with the resourceVersion of the quota that it read does not miss any.
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
from argosy.local.schema.unstructured import get_map
from argosy.local.schema.validation.quota import COUNT, COUNTED

_QUOTAS = "resourcequotas"
_MANAGER = "kube-apiserver"
_UNCOUNTED = frozenset({"events"})


def charges(call: Call, name: str) -> Sequence[Json]:
    """Return the quotas after the creation of an object of this kind; 403 if one would be exceeded."""
    namespaces = call.api.store.collection(_QUOTAS).namespaces
    if not namespaces or call.namespace not in namespaces or call.served.storage in _UNCOUNTED:
        return ()
    counted = _names(call.served)
    charged = []
    for entry in call.api.store.collection(_QUOTAS).listed(call.namespace):
        head = call.api.store.head(_QUOTAS, call.namespace, entry.name)
        quota = head.decoded() if head is not None else {}
        if wanted := [key for key in counted if key in get_map(quota, "status", "hard")]:
            charged.append(_charge(call, name, quota, entry.name, wanted))
    return charged


def write_charges(api: Api, charged: Sequence[Json]) -> asyncio.Future[list[Stored]]:
    """Write the quotas; to be called together with the write of the object."""
    served = api.registry.builtin("", _QUOTAS)
    return asyncio.gather(*[api.put_soon(served, quota) for quota in charged])


def _names(served: Served) -> list[str]:
    names = [f"{COUNT}{qualified(served.group, served.plural)}"]
    return [*names, served.plural] if not served.group and served.plural in COUNTED else names


def _charge(call: Call, name: str, quota: Json, quota_name: str, wanted: list[str]) -> Json:
    hard, used = get_map(quota, "status", "hard"), get_map(quota, "status", "used")
    if any(key not in used for key in wanted):
        why = f"status unknown for quota: {quota_name}, resources: {','.join(sorted(wanted))}"
        raise _forbidden(call, name, why)
    after = {key: canonical(str(value_of(str(used[key])) + 1)) for key in wanted}
    exceeded = sorted(key for key in wanted if value_of(after[key]) > value_of(str(hard[key])))
    if exceeded:
        requested, current, limit = (
            ",".join(f"{key}={amounts[key]}" for key in exceeded)
            for amounts in (dict.fromkeys(exceeded, 1), used, hard)
        )
        why = f"exceeded quota: {quota_name}, requested: {requested}, used: {current}, limited: {limit}"
        raise _forbidden(call, name, why)
    new: Json = {**quota, "metadata": dict(get_map(quota, "metadata"))}
    new["status"] = {**get_map(quota, "status"), "used": {**used, **after}}
    served = call.api.registry.builtin("", _QUOTAS)
    return object_schema.track_update(quota, new, served, _MANAGER, "status")


def _forbidden(call: Call, name: str, why: str) -> StatusError:
    return forbidden(call.served.group, call.served.plural, name, why)
