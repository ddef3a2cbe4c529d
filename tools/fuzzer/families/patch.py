"""Patches of the three types, right and wrong."""

from tests.support.differential import JSON_PATCH, MERGE, STRATEGIC, Step, patch
from tools.fuzzer.context import Scene
from tools.fuzzer.fields import Json, Path, merged
from tools.fuzzer.kinds import Kind


def merge_patch(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    body = _merged(scene, kind)
    return [patch(kind.path(name) + scene.options(), body, MERGE, save=scene.save(kind))]


def strategic_patch(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    body = _merged(scene, kind)
    if scene.draw.chance(35):
        directive = scene.draw.pick(_DIRECTIVES)
        # Go's maps say whether what is both added and taken away is there in the end: left out.
        both = _FINALIZERS_GO in str(directive) and "'finalizers'" in str(body)
        body = body if both else merged(body, directive)
    if kind.name == "Pod" and scene.draw.chance(40):
        body = merged(body, scene.draw.pick(_POD_PARTS))
    if kind.name == "Service" and scene.draw.chance(40):
        body = merged(body, scene.draw.pick(_SERVICE_PARTS))
    return [patch(kind.path(name) + scene.options(), body, STRATEGIC, save=scene.save(kind))]


def json_patch(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    body: object = [_operation(scene, kind) for _ in range(scene.draw.number(1, 3))]
    if scene.draw.chance(4):
        body = scene.draw.pick(
            ({"op": "add"}, [1], [], "nonsense", [{"path": "/data"}], [{"op": "add"}], [None])
        )
    return [patch(kind.path(name) + scene.options(), body, JSON_PATCH, save=scene.save(kind))]


def _merged(scene: Scene, kind: Kind) -> Json:
    body = Json()
    for one in scene.fragments(kind, 3):
        body = merged(body, one)
    if scene.draw.chance(15):
        chosen = scene.draw.pick(scene.fields(kind))
        body = merged(body, _without(chosen.path))
    if scene.draw.chance(8):
        body = merged(body, {"metadata": {"resourceVersion": scene.version(kind)}})
    return body


def _without(path: Path) -> Json:
    value: object = None
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _operation(scene: Scene, kind: Kind) -> Json:
    draw = scene.draw
    chosen = draw.pick(scene.fields(kind))
    path = "/" + "/".join(name.replace("~", "~0").replace("/", "~1") for name in chosen.path)
    value = scene.value(chosen, 8)
    if draw.chance(12):
        path += draw.pick(("/0", "/-", "/x", "/99", "/~1", "/"))
    match draw.weighted(
        ("add", "replace", "remove", "test", "copy", "move", "nonsense"), (8, 8, 6, 4, 2, 2, 1)
    ):
        case "remove":
            return {"op": "remove", "path": path}
        case "copy" | "move" as way:
            source = "/" + "/".join(draw.pick(kind.fields or [chosen]).path)
            return {"op": way, "from": source, "path": path}
        case other:
            return {"op": other, "path": path, "value": value}


_FINALIZERS_GO = "$deleteFromPrimitiveList/finalizers"
_DIRECTIVES: tuple[Json, ...] = (
    {"metadata": {"labels": {"$patch": "replace", "z": "1"}}},
    {"metadata": {"labels": {"$patch": "delete"}}},
    {"metadata": {"annotations": {"$retainKeys": ["note"], "note": "kept"}}},
    {"metadata": {_FINALIZERS_GO: ["example.com/hold"]}},
    {"metadata": {"$setElementOrder/finalizers": ["example.com/more", "example.com/hold"]}},
    {"metadata": {"finalizers": ["example.com/third"]}},
    {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "00000000-0000-0000-0000-00000000000a"}]}},
    {"metadata": {"labels": {"$patch": "nonsense"}}},
    {"data": {"$patch": "replace", "k": "9"}},
    {"$patch": "replace", "metadata": {"labels": {"only": "this"}}},
    {"$patch": "delete"},
    {"spec": {"$retainKeys": ["ports"]}},
)
_POD_PARTS: tuple[Json, ...] = (
    {"spec": {"containers": [{"name": "main", "image": "newer"}]}},
    {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "9"}]}]}},
    {"spec": {"containers": [{"$patch": "delete", "name": "side"}]}},
    {"spec": {"containers": [{"image": "nameless"}]}},
    {"spec": {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}},
    {"spec": {"tolerations": [{"key": "new", "operator": "Exists"}]}},
    {"spec": {"activeDeadlineSeconds": 50}},
    {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}},
)
_SERVICE_PARTS: tuple[Json, ...] = (
    {"spec": {"ports": [{"port": 80, "name": "renamed"}]}},
    {"spec": {"ports": [{"port": 443, "name": "more"}]}},
    {"spec": {"ports": [{"$patch": "delete", "port": 80}]}},
    {"spec": {"ports": [{"$patch": "replace"}, {"port": 81}]}},
    {"spec": {"selector": None}},
)
