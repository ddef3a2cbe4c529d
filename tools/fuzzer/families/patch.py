"""Patches of the three types, valid and invalid."""

from tests.support.differential import JSON_PATCH, MERGE, STRATEGIC, Step, patch
from tools.fuzzer.context import Context
from tools.fuzzer.fields import Json, Path, merged
from tools.fuzzer.kinds import Kind


def merge_patch(context: Context) -> list[Step]:
    kind, name = context.target()
    body = _merged(context, kind)
    return [patch(kind.path(name) + context.options(), body, MERGE, save=context.save(kind))]


def strategic_patch(context: Context) -> list[Step]:
    kind, name = context.target()
    body = _merged(context, kind)
    if context.draw.chance(35):
        directive = context.draw.pick(_DIRECTIVES)
        # The result of adding and removing the same item depends on the order of a Go map: left out.
        both = _FINALIZERS_GO in str(directive) and "'finalizers'" in str(body)
        body = body if both else merged(body, directive)
    if kind.name == "Pod" and context.draw.chance(40):
        body = merged(body, context.draw.pick(_POD_PARTS))
    if kind.name == "Service" and context.draw.chance(40):
        body = merged(body, context.draw.pick(_SERVICE_PARTS))
    return [patch(kind.path(name) + context.options(), body, STRATEGIC, save=context.save(kind))]


def json_patch(context: Context) -> list[Step]:
    kind, name = context.target()
    body: object = [_operation(context, kind) for _ in range(context.draw.number(1, 3))]
    if context.draw.chance(4):
        body = context.draw.pick(
            ({"op": "add"}, [1], [], "nonsense", [{"path": "/data"}], [{"op": "add"}], [None])
        )
    return [patch(kind.path(name) + context.options(), body, JSON_PATCH, save=context.save(kind))]


def _merged(context: Context, kind: Kind) -> Json:
    body = Json()
    for part in context.fragments(kind, 3):
        body = merged(body, part)
    if context.draw.chance(15):
        chosen = context.draw.pick(context.fields(kind))
        body = merged(body, _without(chosen.path))
    if context.draw.chance(8):
        body = merged(body, {"metadata": {"resourceVersion": context.version(kind)}})
    return body


def _without(path: Path) -> Json:
    value: object = None
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _operation(context: Context, kind: Kind) -> Json:
    draw = context.draw
    chosen = draw.pick(context.fields(kind))
    path = "/" + "/".join(name.replace("~", "~0").replace("/", "~1") for name in chosen.path)
    value = context.value(chosen, 8)
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
