"""Creates: whole objects, generated names, the same name twice, dry runs."""

from tests.support.differential import Step, post
from tools.fuzzer.context import Context
from tools.fuzzer.fields import Json, merged


def create(context: Context) -> list[Step]:
    kind = context.kind()
    if context.draw.chance(8):
        return _generated(context)
    name = context.name_for(kind)
    body = kind.object(name, context.fragments(kind))
    return [post(kind.collection + context.options(), body, save=context.save(kind, name))]


def _generated(context: Context) -> list[Step]:
    """Create with generateName; later steps take the name from the response."""
    kind = context.kind()
    prefix = context.draw.pick(("g-", "made-by-", "x" * 70, "Bad_", "a.b-"))
    prefix = prefix if kind.namespaced else f"$ns-{prefix}"
    body: Json = merged(kind.object("", context.fragments(kind, 2)), {"metadata": {"generateName": prefix}})
    metadata = body["metadata"]
    if isinstance(metadata, dict):
        metadata = dict(metadata)
        metadata.pop("name", None)  # a random mistake may have removed it
        body = {**body, "metadata": metadata}
    saved = context.save(kind)
    context.objects.append((kind, f"${saved}.metadata.name"))
    return [post(kind.collection + context.options(), body, save=saved)]
