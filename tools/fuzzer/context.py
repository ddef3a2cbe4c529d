"""What a sequence knows of itself while it is made: its kinds, objects it has written, answers saved."""

from urllib.parse import urlencode

from tools.fuzzer.fields import METADATA, SYSTEM, Field, Json, fragment
from tools.fuzzer.kinds import Kind
from tools.fuzzer.rng import Draw

NAMES = ("a", "b", "c")
MANAGERS = ("alice", "bob", "carol")


class Scene:
    def __init__(self, draw: Draw, kinds: list[Kind]) -> None:
        self.draw, self.kinds = draw, kinds
        self.made: list[tuple[Kind, str]] = []
        self.saves: list[tuple[str, Kind]] = []
        """Answers that later steps may refer to, each of an object of that kind unless it was refused."""
        self.lists: list[tuple[str, Kind]] = []
        """Saved lists. Their versions are those of all objects together: good only to read from."""
        self.pages: list[tuple[str, str]] = []
        """Saved pages of lists, with the query that asked for them."""
        self.defined = True
        """Whether its kinds are there: a definition may have been deleted."""
        self._count = 0
        self._forgotten = 0

    def kind(self) -> Kind:
        return self.draw.pick(self.kinds)

    def target(self) -> tuple[Kind, str]:
        """An object, mostly one that a step before has made."""
        if self.made and self.draw.chance(90):
            return self.draw.pick(self.made[-4:])
        kind = self.kind()
        return kind, self.name_for(kind)

    def name_for(self, kind: Kind) -> str:
        """Namespaces are everybody's: those of a sequence begin with the name of its own."""
        name = self.draw.pick(NAMES)
        return name if kind.namespaced else f"$ns-{name}"

    def save(self, kind: Kind, name: str = "") -> str:
        """A name for an answer that is worth keeping."""
        self._count += 1
        saved = f"s{self._count}"
        self.saves.append((saved, kind))
        if name and (kind, name) not in self.made:
            self.made.append((kind, name))
        return saved

    def forget(self) -> None:
        """The definition of its kinds has changed: nothing is read from a version of before.

        Kubernetes then begins to remember anew, with the first request that it happens to get.
        """
        self._forgotten = len(self.saves)
        self.lists.clear()

    def saved(self, path: str, kind: Kind | None = None, begin: int = 0) -> str:
        """A field of an answer that was saved, of late rather than long ago; nothing if there is none."""
        found = [name for name, of in self.saves[begin:] if kind is None or of is kind]
        if not found:
            return ""
        chosen = found[-1] if self.draw.chance(60) else self.draw.pick(found)
        return f"${chosen}.{path}"

    def save_list(self, kind: Kind) -> str:
        self._count += 1
        self.lists.append((f"s{self._count}", kind))
        return f"s{self._count}"

    def moment(self, kind: Kind) -> str:
        """A version to read from."""
        lists = [name for name, of in self.lists if of is kind]
        if lists and self.draw.chance(30):
            return f"${self.draw.pick(lists)}.metadata.resourceVersion"
        return self.saved("metadata.resourceVersion", kind, self._forgotten) or "0"

    def version(self, kind: Kind) -> str:
        """A version that an object had."""
        return self.saved("metadata.resourceVersion", kind) or "0"

    def value(self, field: Field, wrong: int) -> object:
        """A value of a field, a wrong one in so many of a hundred times."""
        is_wrong = bool(field.bad) and (self.draw.chance(wrong) or not field.good)
        return self.draw.pick(field.bad if is_wrong else field.good)

    def fields(self, kind: Kind) -> tuple[Field, ...]:
        """A table of fields to choose from, mostly the kind's own."""
        if self.draw.chance(4):
            return SYSTEM
        return METADATA if self.draw.chance(25) else kind.fields

    def fragments(self, kind: Kind, high: int = 3, wrong: int = 8) -> list[Json]:
        """A few fields, each as an object with that field alone."""
        chosen = [self.draw.pick(self.fields(kind)) for _ in range(self.draw.number(0, high))]
        chosen = [one for one in chosen if one.good or self.draw.chance(wrong)]
        return [fragment(one.path, self.value(one, wrong)) for one in chosen]

    def options(self, **more: str) -> str:
        """The query of a write."""
        draw, asked = self.draw, dict(more)
        if draw.chance(7):
            asked["dryRun"] = "All"
        if draw.chance(12):
            asked.setdefault("fieldManager", draw.pick(MANAGERS))
        if draw.chance(25):
            asked["fieldValidation"] = draw.pick(("Strict", "Warn", "Ignore"))
        return query(**asked)


def query(**parameters: str) -> str:
    """A query string with its question mark, or nothing. References to answers are left as they are."""
    return f"?{urlencode(parameters, safe='$')}" if parameters else ""
