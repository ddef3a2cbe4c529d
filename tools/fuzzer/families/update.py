"""Updates with the current version, an old one or none, with another name, and of missing objects."""

from tests.support.differential import Step, get, put
from tools.fuzzer.context import Context
from tools.fuzzer.fields import Json, merged
from tools.fuzzer.kinds import Kind


def update(context: Context) -> list[Step]:
    kind, name = context.target()
    path = kind.path(name) + context.options()
    if context.draw.chance(15) and (whole := context.saved_field("", kind)):
        # A saved response, maybe an old one.
        return [put(path, whole.rstrip("."), save=context.save(kind))]
    body = merged(kind.object(name, context.fragments(kind)), {"metadata": _metadata(context, kind)})
    before = [get(kind.path(name), save=context.save(kind), shown=False)] if context.draw.chance(40) else []
    return [*before, put(path, body, save=context.save(kind))]


def _metadata(context: Context, kind: Kind) -> Json:
    draw, metadata = context.draw, Json()
    if draw.chance(60 if kind.typed else 85):
        metadata["resourceVersion"] = context.version(kind)
    if draw.chance(10):
        metadata["uid"] = context.saved_field("metadata.uid", kind)
    if draw.chance(3):
        metadata["name"] = draw.pick(("other", "", "Bad_Name"))
    if draw.chance(3):
        metadata["namespace"] = draw.pick(("$ns", "default", ""))
    return metadata
