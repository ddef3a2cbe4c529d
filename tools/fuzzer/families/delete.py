"""Deletes: finalizers, preconditions, propagation policies, grace periods, dry runs, whole collections."""

from tests.support.differential import JSON_PATCH, MERGE, Step, delete, get, patch
from tools.fuzzer.context import Context, query
from tools.fuzzer.fields import Json
from tools.fuzzer.kinds import Kind

_POLICIES = ("Background", "Foreground", "Orphan", "Background", "Foreground", "Orphan", "Nonsense", "")
_GRACES = (0, 0, 1, 5, 30, -1, "5", 1.5)


def remove(context: Context) -> list[Step]:
    """Delete an object, and mostly get it afterwards."""
    kind, name = context.target()
    draw, body, asked = context.draw, None, dict[str, str]()
    if draw.chance(55):
        body = _options(context, kind)
    if draw.chance(15):
        asked["propagationPolicy"] = draw.pick(_POLICIES)
    if draw.chance(10):
        asked["gracePeriodSeconds"] = str(draw.pick(_GRACES))
    if draw.chance(5):
        asked["dryRun"] = draw.pick(("All", "All", "Some"))
    if draw.chance(3):
        asked["orphanDependents"] = draw.pick(("true", "false", "x"))
    after = [get(kind.path(name), save=context.save(kind))] if draw.chance(50) else []
    _without_policy(asked, body or {})
    return [delete(kind.path(name) + query(**asked), body, save=context.save(kind)), *after]


def _without_policy(asked: dict[str, str], body: Json) -> None:
    """Remove the policy of a dry run, which could remove the last finalizer, a quirk that we leave out."""
    if "dryRun" not in asked and "dryRun" not in body:
        return
    for options in (asked, body):
        for name in ("propagationPolicy", "orphanDependents"):
            options.pop(name, None)


def _options(context: Context, kind: Kind) -> Json:
    draw, body = context.draw, Json()
    if draw.chance(20):
        body.update({"apiVersion": "v1", "kind": "DeleteOptions"})
    if draw.chance(45):
        body["propagationPolicy"] = draw.pick(_POLICIES)
    if draw.chance(25):
        body["gracePeriodSeconds"] = draw.pick(_GRACES)
    if draw.chance(35):
        body["preconditions"] = _preconditions(context, kind)
    if draw.chance(5):
        body["dryRun"] = draw.pick((["All"], ["All"], ["Some"], "All", [], ["All", "All"]))
    if draw.chance(4):
        body["orphanDependents"] = draw.pick((True, False, "x"))
    if draw.chance(3):
        body.update(draw.pick(({"nonsense": 1}, {"kind": "Pod", "apiVersion": "v1"}, {"preconditions": "x"})))
    return body


def _preconditions(context: Context, kind: Kind) -> Json:
    draw, on_disagreement = context.draw, Json()
    if draw.chance(60):
        right = context.saved_field("metadata.uid", kind)
        on_disagreement["uid"] = (
            right if right and draw.chance(75) else "00000000-0000-0000-0000-000000000009"
        )
    if draw.chance(60):
        on_disagreement["resourceVersion"] = context.version(kind)
    return on_disagreement


def release(context: Context) -> list[Step]:
    """Remove finalizers, or add one to a terminating object, and get it afterwards."""
    kind, name = context.target()
    finalizers = context.draw.pick((None, None, [], ["example.com/hold"], ["example.com/new"], ["orphan"]))
    step = patch(kind.path(name), {"metadata": {"finalizers": finalizers}}, MERGE, save=context.save(kind))
    if context.draw.chance(25):
        operations = [{"op": "remove", "path": "/metadata/finalizers"}]
        step = patch(kind.path(name), operations, JSON_PATCH, save=context.save(kind))
    return [step, get(kind.path(name))]


def remove_all(context: Context) -> list[Step]:
    """Delete a collection in the namespace of the sequence; never all namespaces."""
    kind, draw = context.kind(), context.draw
    asked: dict[str, str] = {}
    if draw.chance(50):
        asked["labelSelector"] = draw.pick(("x=1", "x", "!x", "x in (1,2)", "x=1,y=1", "x==", "!!", "x in ("))
    if draw.chance(30):
        asked["fieldSelector"] = draw.pick(
            ("metadata.name=a", "metadata.name!=a", "nonsense=1", "metadata.name")
        )
    if draw.chance(10):
        asked["dryRun"] = "All"
    if draw.chance(5):
        asked["limit"] = draw.pick(("1", "x"))
    if not kind.namespaced:
        asked["fieldSelector"] = "metadata.name=$ns-a"
    body = _options(context, kind) if draw.chance(25) else None
    after = get(kind.collection) if kind.namespaced else get(kind.path("$ns-a"))
    return [delete(kind.collection + query(**asked), body), after]
