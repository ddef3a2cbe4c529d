"""Definitions of custom kinds: made, changed, given versions, deleted, with objects of theirs around.

Each sequence has a definition of its own, whose group has the name of the sequence's namespace, and takes it
away in the end: the judge holds much for each. After every change both servers are waited for, since both
take it up a moment later.
"""

from tests.support.differential import Step, delete, get, patch, post
from tools.fuzzer.context import Scene
from tools.fuzzer.fields import Json, merged
from tools.fuzzer.kinds import Kind
from tools.fuzzer.rng import Draw
from tools.fuzzer.widget_kind import DEFINITIONS, SPEC, definition, kind, version

GROUP = "$ns.example.com"
NAME = f"{DEFINITIONS}/widgets.{GROUP}"
_GO_VALUES = ("message", "details.causes.*.message")


def defined(draw: Draw) -> tuple[list[Step], list[Kind]]:
    """The beginning of a sequence: a definition that is taken, and the kinds it makes."""
    first = version()
    second = version("v2", storage=False)
    versions = [first] if draw.chance(60) else [first, second]
    made = definition(GROUP, *versions)
    if draw.chance(15):
        first.pop("subresources")
        second.pop("subresources")
    steps = [post(DEFINITIONS, made, hide=("status",)), *_settled([str(one["name"]) for one in versions])]
    return steps, [kind(GROUP, str(one["name"])) for one in versions]


def _settled(versions: list[str]) -> list[Step]:
    """Wait until a definition is established and served; 404 and 429 are what comes before."""
    return [
        get(NAME, until="status.acceptedNames.kind", shown=False),
        get(NAME, until="status.conditions.1", shown=False),
        *(
            get(f"/apis/{GROUP}/{name}/namespaces/$ns/widgets", until_code=200, shown=False)
            for name in versions
        ),
    ]


def change(scene: Scene) -> list[Step]:
    """Change the definition; what it means for objects shows in the steps that follow."""
    draw = scene.draw
    if not scene.defined:
        return []
    if draw.chance(45):
        return [patch(NAME, *draw.pick(_REFUSED), hide=("status", *_GO_VALUES))]
    mark = f"c{len(scene.saves)}"
    scene.save(scene.kind())
    scene.forget()
    more: Json = {"type": "object", "properties": {mark: {"type": "string"}}}
    spec = merged(merged(SPEC, more), draw.pick(_SPECS))
    versions = [version(one.api_version.split("/")[1], spec) for one in scene.kinds]
    for one in versions[1:]:
        one["storage"] = False
    # A field that is not dropped tells that the new schema is used; the object it is tried with is not kept.
    probe = scene.kinds[0].object("probe", [{"spec": {"title": "ab", mark: "x"}}])
    tried = [
        post(
            f"{one.collection}?dryRun=All",
            {**probe, "apiVersion": one.api_version},
            until=f"spec.{mark}",
            shown=False,
        )
        for one in scene.kinds
    ]
    body = {"spec": {"versions": versions}}
    return [patch(NAME, body, hide=("status", "metadata.resourceVersion")), *tried]


def undefine(scene: Scene) -> list[Step]:
    """Delete the definition with all its objects, and perhaps make it again."""
    if not scene.defined:
        return []
    scene.forget()
    hidden = ("status", "metadata.deletionTimestamp", "metadata.resourceVersion")
    gone = [
        *_let_go(scene),
        delete(NAME, hide=hidden),
        get(NAME, until_code=404),
        *(get(one.collection, until_code=404) for one in scene.kinds),
    ]
    if scene.draw.chance(50):
        scene.defined = False
        return gone
    versions = [version(one.api_version.split("/")[1], storage=one is scene.kinds[0]) for one in scene.kinds]
    again = post(DEFINITIONS, definition(GROUP, *versions), hide=("status",))
    return [*gone, again, *_settled([str(one["name"]) for one in versions])]


def _let_go(scene: Scene) -> list[Step]:
    """Objects that finalizers hold would hold their definition."""
    return [
        patch(one.path(name), {"metadata": {"finalizers": None}}, shown=False) for one, name in scene.made
    ]


def cleaned(scene: Scene) -> list[Step]:
    """The end of a sequence: nothing of it stays, for the judge tires of definitions that cannot go."""
    return [*_let_go(scene), delete(NAME, shown=False)]


def refuse(scene: Scene) -> list[Step]:
    """A definition that is wrong, beside the one that is there."""
    spec = scene.draw.pick(_WRONG_SPECS)
    wrong = version(spec=spec)
    del wrong["selectableFields"]  # it names a field that is not there
    body = definition(f"other.{GROUP}", wrong)
    return [post(f"{DEFINITIONS}?dryRun=All", body, hide=_GO_VALUES)]


_SPECS: tuple[Json, ...] = (
    {"properties": {"size": {"type": "integer", "minimum": 2, "maximum": 10}}},
    {"properties": {"colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "blue"}}},
    {"properties": {"added": {"type": "string"}}},
    {"required": ["size", "title"]},
    {
        "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}}
        }
    },
    {"properties": {"title": {"type": "string", "maxLength": 2}}},
    {"x-kubernetes-validations": [{"rule": "self.size > 1", "message": "size must be above 1"}]},
    {"x-kubernetes-preserve-unknown-fields": True},
)
_REFUSED: tuple[tuple[object], ...] = (
    ({"spec": {"scope": "Cluster"}},),
    ({"spec": {"group": "other.example.com"}},),
    ({"spec": {"names": {"plural": "gadgets"}}},),
    ({"spec": {"versions": []}},),
    ({"spec": {"versions": [version(storage=False)]}},),
    ({"spec": {"versions": [version("V1")]}},),
    ({"spec": {"versions": [version(), version()]}},),
    ({"spec": {"versions": [{"name": "v1", "served": True, "storage": True}]}},),
    ({"spec": {"preserveUnknownFields": True}},),
    ({"spec": {"conversion": {"strategy": "Nonsense"}}},),
    ({"metadata": {"labels": {"x": "no label!"}}},),
    ({"spec": "text"},),
)


def _properties(**properties: object) -> Json:
    return {"type": "object", "properties": properties}


_WRONG_SPECS: tuple[Json, ...] = (
    {},
    {"type": "thing"},
    _properties(a={}),
    _properties(a={"type": "array"}),
    _properties(a={"type": "integer", "default": "x"}),
    _properties(a={"type": "string", "pattern": "["}),
    _properties(a={"type": "string", "enum": ["x"], "default": "y"}),
    _properties(a={"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    _properties(a={"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
    _properties(a={"type": "array", "x-kubernetes-list-type": "nonsense", "items": {"type": "string"}}),
    _properties(a={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
    _properties(a={"type": "object", "x-kubernetes-map-type": "nonsense"}),
    _properties(a={"$ref": "#/definitions/x"}),
    _properties(a={"type": "string", "nonsense": 1}),
    _properties(a={"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
    _properties(a={"type": "string", "x-kubernetes-preserve-unknown-fields": True}),
    _properties(a={"x-kubernetes-int-or-string": True, "type": "string"}),
    _properties(a={"type": "integer", "x-kubernetes-validations": [{"rule": "self.b > 1"}]}),
    _properties(a={"type": "integer", "x-kubernetes-validations": [{"rule": ""}]}),
    _properties(a={"anyOf": [{"type": "string"}]}),
    {**_properties(a={"type": "string"}), "required": ["b"]},
)
