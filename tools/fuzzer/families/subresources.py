"""Writes of an object's status and of its scale."""

from tests.support.differential import JSON_PATCH, MERGE, STRATEGIC, Step, get, patch, put
from tools.fuzzer.context import Scene
from tools.fuzzer.fields import Json, fragment, merged
from tools.fuzzer.kinds import Kind


def write_status(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    path = kind.path(name, "status") + scene.options()
    if kind.name == "Service":
        # A PUT would make it, and answers show what one of type ExternalName hides: quirks we leave out.
        return [get(kind.path(name))]
    if scene.draw.chance(8):
        return [get(kind.path(name, "status"))]
    body = _status(scene, kind)
    if scene.draw.chance(35):
        more: Json = {"metadata": {"resourceVersion": scene.version(kind)}} if scene.draw.chance(75) else {}
        before = [get(kind.path(name), save=scene.save(kind), shown=False)] if scene.draw.chance(50) else []
        return [*before, put(path, merged(merged(kind.object(name), body), more), save=scene.save(kind))]
    if scene.draw.chance(15):
        operations = [{"op": "add", "path": f"/{name}", "value": value} for name, value in body.items()]
        return [patch(path, operations, JSON_PATCH, save=scene.save(kind))]
    way = STRATEGIC if kind.typed and scene.draw.chance(50) else MERGE
    return [patch(path, body, way, save=scene.save(kind))]


def _status(scene: Scene, kind: Kind) -> Json:
    body = Json()
    for _ in range(scene.draw.number(1, 2)):
        if kind.status:
            chosen = scene.draw.pick(kind.status)
            body = merged(body, fragment(chosen.path, scene.value(chosen, 10)))
    if scene.draw.chance(20):
        for one in scene.fragments(kind, 1):
            body = merged(body, one)
    return body


def write_scale(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    path = kind.path(name, "scale")
    replicas = scene.draw.pick((0, 1, 5, 5, 7, -1, "3", None, 1.5))
    if scene.draw.chance(25):
        return [get(path)]
    if scene.draw.chance(50):
        body: object = {"spec": {"replicas": replicas}}
        way = scene.draw.pick((MERGE, MERGE, STRATEGIC, JSON_PATCH))
        if way == JSON_PATCH:
            body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        return [patch(path + scene.options(), body, way, save=scene.save(kind))]
    metadata: Json = {"name": name, "namespace": "$ns"}
    if scene.draw.chance(40):
        metadata["resourceVersion"] = scene.version(kind)
    if scene.draw.chance(5):
        metadata["name"] = "other"
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": replicas},
    }
    return [put(path + scene.options(), scale, save=scene.save(kind))]
