"""Watches from an earlier version or from the start, with bookmarks, by label and by field.

A watch is read until the event of an object that is written last and that every selector here matches, so it
ends at once on both servers for any number of events.
"""

from tests.support.differential import Step, get, post, watch
from tools.fuzzer.context import Context, query
from tools.fuzzer.families.read import PARTIAL, TABLE
from tools.fuzzer.fields import merged
from tools.fuzzer.kinds import Kind

LAST = "zz-last"
_MOST = 60
_PASSING = ("x=1", "x", "x in (1,2)", "x!=2")
_REFUSED = ("x in (", "bad key!=1")


def follow(context: Context) -> list[Step]:
    kind, draw = context.kind(), context.draw
    if not kind.namespaced:
        return []
    asked: dict[str, str] = {}
    if draw.chance(35):
        asked["labelSelector"] = draw.pick(_PASSING if draw.chance(90) else _REFUSED)
    if draw.chance(25):
        chosen = ("metadata.name!=a", "metadata.namespace=$ns", f"metadata.name={LAST}", "nonsense=1")
        asked["fieldSelector"] = draw.weighted(chosen, (3, 3, 3, 1))
    _beginning(context, kind, asked)
    if draw.chance(4):
        asked["timeoutSeconds"] = draw.pick(("x", "20"))
    accept = draw.weighted(("application/json", TABLE, PARTIAL), (75, 15, 10))
    if accept == TABLE:
        asked["includeObject"] = "Metadata"
    name = f"{LAST}-{len(context.saves)}"
    if "metadata.name=" in asked.get("fieldSelector", ""):
        asked["fieldSelector"] = f"metadata.name={name}"
    marked = asked.get("sendInitialEvents") == "true" and asked.get("allowWatchBookmarks") in ("true", "1")
    body = merged(kind.object(name), {"metadata": {"labels": {"x": "1"}}})
    return [
        post(kind.collection, body, save=context.save(kind)),
        get(kind.collection, shown=False),
        watch(kind.collection + query(**asked), _MOST, "BOOKMARK" if marked else name, accept=accept),
    ]


def _beginning(context: Context, kind: Kind, asked: dict[str, str]) -> None:
    """The start of a watch; one with initial events may end with a bookmark."""
    draw = context.draw
    match draw.weighted(("version", "nothing", "zero", "initial", "odd"), (60, 10, 10, 12, 4)):
        case "version":
            asked["resourceVersion"] = context.read_version(kind)
        case "zero":
            asked["resourceVersion"] = "0"
        case "initial":
            asked["sendInitialEvents"] = draw.pick(("true", "true", "false"))
            asked["resourceVersionMatch"] = "NotOlderThan" if draw.chance(90) else "Exact"
            if draw.chance(30):
                asked["resourceVersion"] = context.read_version(kind)
        case "odd":
            asked["resourceVersion"] = draw.pick(("x", "-1"))
        case _:
            pass
    if draw.chance(80 if "sendInitialEvents" in asked else 25):
        asked["allowWatchBookmarks"] = draw.pick(("true", "1", "false"))
