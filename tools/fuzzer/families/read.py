"""Reads: objects and lists in every form, with selectors, pages and versions."""

from tests.support.differential import Step, get
from tools.fuzzer.context import Context, query
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


def read(context: Context) -> list[Step]:
    """Get an object."""
    kind, name = context.target()
    forms = (
        "application/json",
        TABLE,
        PARTIAL,
        YAML,
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
        "*/*",
    )
    accept = context.draw.weighted(forms, (60, 12, 8, 5, 2, 3))
    step = get(kind.path(name), accept=accept)
    if accept == "application/json":
        step = get(kind.path(name), save=context.save(kind))
    return [step]


def list_all(context: Context) -> list[Step]:
    """List a collection, maybe with a selector, maybe only the first page."""
    kind, draw = context.kind(), context.draw
    asked: dict[str, str] = {}
    if draw.chance(45):
        asked["labelSelector"] = draw.pick(_LABELS)
    if draw.chance(30) or not kind.namespaced:
        asked["fieldSelector"] = _field_selector(context, kind)
    if draw.chance(35) and kind.namespaced:
        asked["limit"] = draw.pick(("1", "1", "2", "100", "0", "-1", "x"))
    before = _version(context, kind, asked)
    forms = ("application/json", TABLE, PARTIAL_LIST, f"{TABLE},application/json")
    accept = draw.weighted(forms, (70, 15, 8, 7))
    if accept == TABLE and draw.chance(30):
        asked["includeObject"] = draw.pick(("Object", "None", "Metadata", "Nonsense"))
    step = get(kind.collection + query(**asked), accept=accept, save=(saved := context.save_list(kind)))
    if "limit" in asked:
        filters = {name: asked[name] for name in ("labelSelector", "fieldSelector", "limit") if name in asked}
        context.pages.append((saved, f"{kind.collection}{query(**filters)}"))
    return [*before, step]


def _field_selector(context: Context, kind: Kind) -> str:
    if not kind.namespaced:
        return f"metadata.name={context.name_for(kind)}"
    if context.draw.chance(50):
        name = context.draw.pick(kind.selectors)
        operator = context.draw.pick(("=", "!=", "=="))
        return f"{name}{operator}{context.draw.pick(('a', 'red', 'Running', '', 'n1'))}"
    return context.draw.pick(_FIELDS)


def _version(context: Context, kind: Kind, asked: dict[str, str]) -> list[Step]:
    """Set resourceVersion; where kube-apiserver may answer from its cache, a consistent read comes first."""
    draw = context.draw
    if not draw.chance(25):
        return []
    asked["resourceVersion"] = draw.pick(
        (context.read_version(kind), context.read_version(kind), "0", "x", "-1")
    )
    if draw.chance(50):
        asked["resourceVersionMatch"] = draw.pick(
            ("NotOlderThan", "Exact", "NotOlderThan", "Exact", "Nonsense")
        )
    return [get(kind.collection, shown=False)] if kind.namespaced else [get(kind.path("$ns"), shown=False)]


def next_page(context: Context) -> list[Step]:
    """Get the next page of a list."""
    if not context.pages:
        return list_all(context)
    saved, path = context.draw.pick(context.pages)
    return [get(f"{path}&continue=${saved}.metadata.continue", save=saved)]
