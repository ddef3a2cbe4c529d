"""Creates: whole objects, names made by the server, the same name twice, dry runs."""

from tests.support.differential import Step, post
from tools.fuzzer.context import Scene
from tools.fuzzer.fields import Json, merged


def create(scene: Scene) -> list[Step]:
    kind = scene.kind()
    if scene.draw.chance(8):
        return _generated(scene)
    name = scene.name_for(kind)
    body = kind.object(name, scene.fragments(kind))
    return [post(kind.collection + scene.options(), body, save=scene.save(kind, name))]


def _generated(scene: Scene) -> list[Step]:
    """A name made by the server: the object is then known by what was answered."""
    kind = scene.kind()
    prefix = scene.draw.pick(("g-", "made-by-", "x" * 70, "Bad_", "a.b-"))
    prefix = prefix if kind.namespaced else f"$ns-{prefix}"
    body: Json = merged(kind.object("", scene.fragments(kind, 2)), {"metadata": {"generateName": prefix}})
    metadata = body["metadata"]
    if isinstance(metadata, dict):
        metadata = dict(metadata)
        metadata.pop("name", None)  # it may have lost it to a mistake
        body = {**body, "metadata": metadata}
    saved = scene.save(kind)
    scene.made.append((kind, f"${saved}.metadata.name"))
    return [post(kind.collection + scene.options(), body, save=saved)]
