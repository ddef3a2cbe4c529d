"""CRDs that are created, changed, given versions and deleted, together with their objects.

Each sequence has its own CRD, whose group is named after its namespace, and deletes it at the end, because
each takes much memory in kube-apiserver. After every change the sequence waits until both servers serve it.
"""

from tests.support.differential import Step, delete, get, patch, post
from tools.fuzzer.context import Context
from tools.fuzzer.fields import Json, merged
from tools.fuzzer.kinds import Kind
from tools.fuzzer.rng import Draw
from tools.fuzzer.widget_kind import DEFINITIONS, SPEC, definition, kind, version

GROUP = "$ns.example.com"
NAME = f"{DEFINITIONS}/widgets.{GROUP}"
_GO_VALUES = ("message", "details.causes.*.message")


def defined(draw: Draw) -> tuple[list[Step], list[Kind]]:
    """The first steps of a sequence, which create a valid CRD, and the kinds of that."""
    first = version()
    second = version("v2", storage=False)
    versions = [first] if draw.chance(60) else [first, second]
    made = definition(GROUP, *versions)
    if draw.chance(15):
        first.pop("subresources")
        second.pop("subresources")
    steps = [post(DEFINITIONS, made, hide=("status",)), *_settled([str(item["name"]) for item in versions])]
    return steps, [kind(GROUP, str(item["name"])) for item in versions]


def _settled(versions: list[str]) -> list[Step]:
    """Wait until a CRD is established and served; before that the responses are 404 and 429."""
    return [
        get(NAME, until="status.acceptedNames.kind", shown=False),
        get(NAME, until="status.conditions.1", shown=False),
        *(
            get(f"/apis/{GROUP}/{name}/namespaces/$ns/widgets", until_code=200, shown=False)
            for name in versions
        ),
    ]


def change(context: Context) -> list[Step]:
    """Change the CRD; later steps show the effect on objects."""
    draw = context.draw
    if not context.defined:
        return []
    if draw.chance(45):
        return [patch(NAME, *draw.pick(_REFUSED), hide=("status", *_GO_VALUES))]
    mark = f"c{len(context.saves)}"
    context.save(context.kind())
    context.forget()
    more: Json = {"type": "object", "properties": {mark: {"type": "string"}}}
    spec = merged(merged(SPEC, more), draw.pick(_SPECS))
    versions = [version(served.api_version.split("/")[1], spec) for served in context.kinds]
    for later in versions[1:]:
        later["storage"] = False
    # A new field that is not pruned shows that the new schema is served; the object is only a dry run.
    probe = context.kinds[0].object("probe", [{"spec": {"title": "ab", mark: "x"}}])
    tried = [
        post(
            f"{served.collection}?dryRun=All",
            {**probe, "apiVersion": served.api_version},
            until=f"spec.{mark}",
            shown=False,
        )
        for served in context.kinds
    ]
    body = {"spec": {"versions": versions}}
    return [patch(NAME, body, hide=("status", "metadata.resourceVersion")), *tried]


def undefine(context: Context) -> list[Step]:
    """Delete the CRD with all its objects, and maybe create it again."""
    if not context.defined:
        return []
    context.forget()
    hidden = ("status", "metadata.deletionTimestamp", "metadata.resourceVersion")
    gone = [
        *_let_go(context),
        delete(NAME, hide=hidden),
        get(NAME, until_code=404),
        *(get(served.collection, until_code=404) for served in context.kinds),
    ]
    if context.draw.chance(50):
        context.defined = False
        return gone
    versions = [
        version(served.api_version.split("/")[1], storage=served is context.kinds[0])
        for served in context.kinds
    ]
    again = post(DEFINITIONS, definition(GROUP, *versions), hide=("status",))
    return [*gone, again, *_settled([str(item["name"]) for item in versions])]


def _let_go(context: Context) -> list[Step]:
    """Remove the finalizers of objects, which would block the deletion of the CRD."""
    return [
        patch(served.path(name), {"metadata": {"finalizers": None}}, shown=False)
        for served, name in context.objects
    ]


def cleaned(context: Context) -> list[Step]:
    """The last steps of a sequence, which delete the CRD: those that stay slow kube-apiserver down."""
    return [*_let_go(context), delete(NAME, shown=False)]


def refuse(context: Context) -> list[Step]:
    """Create an invalid CRD in addition to the existing one."""
    spec = context.draw.pick(_WRONG_SPECS)
    wrong = version(spec=spec)
    del wrong["selectableFields"]  # it names a field that does not exist
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
