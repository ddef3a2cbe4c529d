"""Deletes: finalizers, preconditions, policies, graces, dry runs, whole collections."""

from tests.support.differential import JSON_PATCH, MERGE, Step, delete, get, patch
from tools.fuzzer.context import Scene, query
from tools.fuzzer.fields import Json
from tools.fuzzer.kinds import Kind

_POLICIES = ("Background", "Foreground", "Orphan", "Background", "Foreground", "Orphan", "Nonsense", "")
_GRACES = (0, 0, 1, 5, 30, -1, "5", 1.5)


def remove(scene: Scene) -> list[Step]:
    """Delete an object, and mostly look what became of it."""
    kind, name = scene.target()
    draw, body, asked = scene.draw, None, dict[str, str]()
    if draw.chance(55):
        body = _options(scene, kind)
    if draw.chance(15):
        asked["propagationPolicy"] = draw.pick(_POLICIES)
    if draw.chance(10):
        asked["gracePeriodSeconds"] = str(draw.pick(_GRACES))
    if draw.chance(5):
        asked["dryRun"] = draw.pick(("All", "All", "Some"))
    if draw.chance(3):
        asked["orphanDependents"] = draw.pick(("true", "false", "x"))
    after = [get(kind.path(name), save=scene.save(kind))] if draw.chance(50) else []
    _without_policy(asked, body or {})
    return [delete(kind.path(name) + query(**asked), body, save=scene.save(kind)), *after]


def _without_policy(asked: dict[str, str], body: Json) -> None:
    """A dry run says nothing of dependents: it might take the last finalizer away, a quirk we leave out."""
    if "dryRun" not in asked and "dryRun" not in body:
        return
    for said in (asked, body):
        for name in ("propagationPolicy", "orphanDependents"):
            said.pop(name, None)


def _options(scene: Scene, kind: Kind) -> Json:
    draw, body = scene.draw, Json()
    if draw.chance(20):
        body.update({"apiVersion": "v1", "kind": "DeleteOptions"})
    if draw.chance(45):
        body["propagationPolicy"] = draw.pick(_POLICIES)
    if draw.chance(25):
        body["gracePeriodSeconds"] = draw.pick(_GRACES)
    if draw.chance(35):
        body["preconditions"] = _preconditions(scene, kind)
    if draw.chance(5):
        body["dryRun"] = draw.pick((["All"], ["All"], ["Some"], "All", [], ["All", "All"]))
    if draw.chance(4):
        body["orphanDependents"] = draw.pick((True, False, "x"))
    if draw.chance(3):
        body.update(draw.pick(({"nonsense": 1}, {"kind": "Pod", "apiVersion": "v1"}, {"preconditions": "x"})))
    return body


def _preconditions(scene: Scene, kind: Kind) -> Json:
    draw, found = scene.draw, Json()
    if draw.chance(60):
        right = scene.saved("metadata.uid", kind)
        found["uid"] = right if right and draw.chance(75) else "00000000-0000-0000-0000-000000000009"
    if draw.chance(60):
        found["resourceVersion"] = scene.version(kind)
    return found


def release(scene: Scene) -> list[Step]:
    """Take finalizers away (or add one to what is being deleted), and look whether it is gone."""
    kind, name = scene.target()
    finalizers = scene.draw.pick((None, None, [], ["example.com/hold"], ["example.com/new"], ["orphan"]))
    step = patch(kind.path(name), {"metadata": {"finalizers": finalizers}}, MERGE, save=scene.save(kind))
    if scene.draw.chance(25):
        operations = [{"op": "remove", "path": "/metadata/finalizers"}]
        step = patch(kind.path(name), operations, JSON_PATCH, save=scene.save(kind))
    return [step, get(kind.path(name))]


def remove_all(scene: Scene) -> list[Step]:
    """Delete a collection of the sequence's own namespace; namespaces themselves are everybody's."""
    kind, draw = scene.kind(), scene.draw
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
    body = _options(scene, kind) if draw.chance(25) else None
    after = get(kind.collection) if kind.namespaced else get(kind.path("$ns-a"))
    return [delete(kind.collection + query(**asked), body), after]
