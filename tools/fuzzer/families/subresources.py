"""Writes of an object's status and of its scale."""

from tests.support.differential import JSON_PATCH, MERGE, STRATEGIC, Step, get, patch, put
from tools.fuzzer.context import Context
from tools.fuzzer.fields import Json, fragment, merged
from tools.fuzzer.kinds import Kind


def write_status(context: Context) -> list[Step]:
    kind, name = context.target()
    path = kind.path(name, "status") + context.options()
    if kind.name == "Service":
        # A PUT would create it, and responses show fields that type ExternalName hides: quirks, left out.
        return [get(kind.path(name))]
    if context.draw.chance(8):
        return [get(kind.path(name, "status"))]
    body = _status(context, kind)
    if context.draw.chance(35):
        more: Json = (
            {"metadata": {"resourceVersion": context.version(kind)}} if context.draw.chance(75) else {}
        )
        before = (
            [get(kind.path(name), save=context.save(kind), shown=False)] if context.draw.chance(50) else []
        )
        return [*before, put(path, merged(merged(kind.object(name), body), more), save=context.save(kind))]
    if context.draw.chance(15):
        operations = [{"op": "add", "path": f"/{name}", "value": value} for name, value in body.items()]
        return [patch(path, operations, JSON_PATCH, save=context.save(kind))]
    way = STRATEGIC if kind.typed and context.draw.chance(50) else MERGE
    return [patch(path, body, way, save=context.save(kind))]


def _status(context: Context, kind: Kind) -> Json:
    body = Json()
    for _ in range(context.draw.number(1, 2)):
        if kind.status:
            chosen = context.draw.pick(kind.status)
            body = merged(body, fragment(chosen.path, context.value(chosen, 10)))
    if context.draw.chance(20):
        for part in context.fragments(kind, 1):
            body = merged(body, part)
    return body


def write_scale(context: Context) -> list[Step]:
    kind, name = context.target()
    path = kind.path(name, "scale")
    replicas = context.draw.pick((0, 1, 5, 5, 7, -1, "3", None, 1.5))
    if context.draw.chance(25):
        return [get(path)]
    if context.draw.chance(50):
        body: object = {"spec": {"replicas": replicas}}
        way = context.draw.pick((MERGE, MERGE, STRATEGIC, JSON_PATCH))
        if way == JSON_PATCH:
            body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        return [patch(path + context.options(), body, way, save=context.save(kind))]
    metadata: Json = {"name": name, "namespace": "$ns"}
    if context.draw.chance(40):
        metadata["resourceVersion"] = context.version(kind)
    if context.draw.chance(5):
        metadata["name"] = "other"
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": replicas},
    }
    return [put(path + context.options(), scale, save=context.save(kind))]
