"""Server-side apply by several managers: conflicts, force, fields let go, and mixing with other writes."""

from tests.support.differential import APPLY, Step, patch
from tools.fuzzer.context import MANAGERS, Scene, query
from tools.fuzzer.fields import Json, fragment, merged
from tools.fuzzer.kinds import Kind


def apply(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    asked: dict[str, str] = {}
    if scene.draw.chance(97):
        asked["fieldManager"] = scene.draw.pick(MANAGERS)
    if scene.draw.chance(30):
        asked["force"] = scene.draw.pick(("true", "true", "true", "false", "1"))
    if scene.draw.chance(5):
        asked["dryRun"] = "All"
    if scene.draw.chance(8):
        asked["fieldValidation"] = scene.draw.pick(("Strict", "Warn", "Ignore"))
    part = "status" if kind.status and scene.draw.chance(10) else ""
    if kind.name == "Service":  # it would be made by that, a quirk we leave out
        part = ""
    body = _wanted(scene, kind, name, part)
    return [patch(kind.path(name, part) + query(**asked), body, APPLY, save=scene.save(kind, name))]


def _empties_metadata(fragment: Json) -> bool:
    """A custom resource that is applied so is stored so, and loses it with the next write: left out."""
    metadata = fragment.get("metadata")
    return isinstance(metadata, dict) and any(not value for value in metadata.values())


def _wanted(scene: Scene, kind: Kind, name: str, part: str) -> Json:
    """What a manager wants: some fields, with what the kind cannot do without in most cases."""
    draw = scene.draw
    body = kind.object(name) if draw.chance(70) else kind.bare(name)
    for one in scene.fragments(kind, 3, wrong=5):
        if kind.typed or not _empties_metadata(one):
            body = merged(body, one)
    if part:
        chosen = draw.pick(kind.status)
        body = merged(kind.bare(name), fragment(chosen.path, scene.value(chosen, 8)))
    if draw.chance(4):
        body = merged(body, {"metadata": {"resourceVersion": scene.version(kind)}})
    return body
