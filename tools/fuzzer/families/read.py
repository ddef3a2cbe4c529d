"""Reads: objects and lists in every form, with selectors, pages and versions."""

from tests.support.differential import Step, get
from tools.fuzzer.context import Scene, query
from tools.fuzzer.kinds import Kind

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
YAML = "application/yaml"
_LABELS = (
    *(
        "x=1",
        "x==1",
        "x!=1",
        "x",
        "!x",
        "x in (1,2)",
        "x notin (1)",
        "x=1,y=1",
        "x=",
        "x in ()",
        "",
        "x>0",
        "x<2",
    ),
    *("x in (1", "=1", "x=a b", "!", "x!", "x===1", "bad key!=1", "x=" + "y" * 64, "a/b/c=1", ",", "x=1,"),
)
_FIELDS = (
    *(
        "metadata.name=a",
        "metadata.name!=a",
        "metadata.name==b",
        "metadata.namespace=$ns",
        "metadata.name=a,",
    ),
    *(
        "nonsense=1",
        "metadata.name",
        "metadata.name=",
        "spec.nonsense=1",
        "metadata.name=a,metadata.name=b",
        "=",
    ),
)


def read(scene: Scene) -> list[Step]:
    """One object."""
    kind, name = scene.target()
    forms = (
        "application/json",
        TABLE,
        PARTIAL,
        YAML,
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
        "*/*",
    )
    accept = scene.draw.weighted(forms, (60, 12, 8, 5, 2, 3))
    step = get(kind.path(name), accept=accept)
    if accept == "application/json":
        step = get(kind.path(name), save=scene.save(kind))
    return [step]


def list_all(scene: Scene) -> list[Step]:
    """A list, perhaps of chosen ones, perhaps the first page of it."""
    kind, draw = scene.kind(), scene.draw
    asked: dict[str, str] = {}
    if draw.chance(45):
        asked["labelSelector"] = draw.pick(_LABELS)
    if draw.chance(30) or not kind.namespaced:
        asked["fieldSelector"] = _field_selector(scene, kind)
    if draw.chance(35) and kind.namespaced:
        asked["limit"] = draw.pick(("1", "1", "2", "100", "0", "-1", "x"))
    before = _version(scene, kind, asked)
    forms = ("application/json", TABLE, PARTIAL_LIST, f"{TABLE},application/json")
    accept = draw.weighted(forms, (70, 15, 8, 7))
    if accept == TABLE and draw.chance(30):
        asked["includeObject"] = draw.pick(("Object", "None", "Metadata", "Nonsense"))
    step = get(kind.collection + query(**asked), accept=accept, save=(saved := scene.save_list(kind)))
    if "limit" in asked:
        rest = {name: asked[name] for name in ("labelSelector", "fieldSelector", "limit") if name in asked}
        scene.pages.append((saved, f"{kind.collection}{query(**rest)}"))
    return [*before, step]


def _field_selector(scene: Scene, kind: Kind) -> str:
    if not kind.namespaced:
        return f"metadata.name={scene.name_for(kind)}"
    if scene.draw.chance(50):
        name = scene.draw.pick(kind.selectors)
        return (
            f"{name}{scene.draw.pick(('=', '!=', '=='))}{scene.draw.pick(('a', 'red', 'Running', '', 'n1'))}"
        )
    return scene.draw.pick(_FIELDS)


def _version(scene: Scene, kind: Kind, asked: dict[str, str]) -> list[Step]:
    """Ask for a version; what the judge may answer from its cache is preceded by a read that is not."""
    draw = scene.draw
    if not draw.chance(25):
        return []
    asked["resourceVersion"] = draw.pick((scene.moment(kind), scene.moment(kind), "0", "x", "-1"))
    if draw.chance(50):
        asked["resourceVersionMatch"] = draw.pick(
            ("NotOlderThan", "Exact", "NotOlderThan", "Exact", "Nonsense")
        )
    return [get(kind.collection, shown=False)] if kind.namespaced else [get(kind.path("$ns"), shown=False)]


def next_page(scene: Scene) -> list[Step]:
    """Go on with a list that was begun."""
    if not scene.pages:
        return list_all(scene)
    saved, path = scene.draw.pick(scene.pages)
    return [get(f"{path}&continue=${saved}.metadata.continue", save=saved)]
