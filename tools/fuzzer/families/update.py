"""Updates: of the current version, of an old one, of none; under another name; of what is not there."""

from tests.support.differential import Step, get, put
from tools.fuzzer.context import Scene
from tools.fuzzer.fields import Json, merged
from tools.fuzzer.kinds import Kind


def update(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    path = kind.path(name) + scene.options()
    if scene.draw.chance(15) and (whole := scene.saved("", kind)):
        # An answer as it was given, perhaps long ago.
        return [put(path, whole.rstrip("."), save=scene.save(kind))]
    body = merged(kind.object(name, scene.fragments(kind)), {"metadata": _metadata(scene, kind)})
    before = [get(kind.path(name), save=scene.save(kind), shown=False)] if scene.draw.chance(40) else []
    return [*before, put(path, body, save=scene.save(kind))]


def _metadata(scene: Scene, kind: Kind) -> Json:
    draw, metadata = scene.draw, Json()
    if draw.chance(60 if kind.typed else 85):
        metadata["resourceVersion"] = scene.version(kind)
    if draw.chance(10):
        metadata["uid"] = scene.saved("metadata.uid", kind)
    if draw.chance(3):
        metadata["name"] = draw.pick(("other", "", "Bad_Name"))
    if draw.chance(3):
        metadata["namespace"] = draw.pick(("$ns", "default", ""))
    return metadata
