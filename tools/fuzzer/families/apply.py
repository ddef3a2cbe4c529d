"""Server-side apply by several managers: conflicts, force, fields given up, and mixing with other writes."""

from tests.support.differential import APPLY, Step, patch
from tools.fuzzer.context import MANAGERS, Context, query
from tools.fuzzer.fields import Json, fragment, merged
from tools.fuzzer.kinds import Kind


def apply(context: Context) -> list[Step]:
    kind, name = context.target()
    asked: dict[str, str] = {}
    if context.draw.chance(97):
        asked["fieldManager"] = context.draw.pick(MANAGERS)
    if context.draw.chance(30):
        asked["force"] = context.draw.pick(("true", "true", "true", "false", "1"))
    if context.draw.chance(5):
        asked["dryRun"] = "All"
    if context.draw.chance(8):
        asked["fieldValidation"] = context.draw.pick(("Strict", "Warn", "Ignore"))
    part = "status" if kind.status and context.draw.chance(10) else ""
    if kind.name == "Service":  # kube-apiserver would create it, a quirk that we leave out
        part = ""
    body = _wanted(context, kind, name, part)
    return [patch(kind.path(name, part) + query(**asked), body, APPLY, save=context.save(kind, name))]


def _empties_metadata(fragment: Json) -> bool:
    """True for empty metadata, which kube-apiserver stores and drops with the next write: left out."""
    metadata = fragment.get("metadata")
    return isinstance(metadata, dict) and any(not value for value in metadata.values())


def _wanted(context: Context, kind: Kind, name: str, part: str) -> Json:
    """The applied configuration of a manager: some fields, mostly with those that the kind requires."""
    draw = context.draw
    body = kind.object(name) if draw.chance(70) else kind.bare(name)
    for values in context.fragments(kind, 3, wrong=5):
        if kind.typed or not _empties_metadata(values):
            body = merged(body, values)
    if part:
        chosen = draw.pick(kind.status)
        body = merged(kind.bare(name), fragment(chosen.path, context.value(chosen, 8)))
    if draw.chance(4):
        body = merged(body, {"metadata": {"resourceVersion": context.version(kind)}})
    return body
