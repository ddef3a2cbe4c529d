"""The state of a sequence while it is generated: its kinds, the objects it has written, saved responses."""

from urllib.parse import urlencode

from tools.fuzzer.fields import METADATA, SYSTEM, Field, Json, fragment
from tools.fuzzer.kinds import Kind
from tools.fuzzer.rng import Draw

NAMES = ("a", "b", "c")
MANAGERS = ("alice", "bob", "carol")


class Context:
    def __init__(self, draw: Draw, kinds: list[Kind]) -> None:
        self.draw, self.kinds = draw, kinds
        self.objects: list[tuple[Kind, str]] = []
        self.saves: list[tuple[str, Kind]] = []
        """Responses that later steps may refer to, each of an object of that kind unless it is an error."""
        self.lists: list[tuple[str, Kind]] = []
        """Saved lists, whose versions can only be used for reads: they are no object's version."""
        self.pages: list[tuple[str, str]] = []
        """Saved pages of lists, each with the query of its request."""
        self.defined = True
        """False if the definition of its kinds was deleted."""
        self._count = 0
        self._forgotten = 0

    def kind(self) -> Kind:
        return self.draw.pick(self.kinds)

    def target(self) -> tuple[Kind, str]:
        """An object, mostly one that an earlier step has created."""
        if self.objects and self.draw.chance(90):
            return self.draw.pick(self.objects[-4:])
        kind = self.kind()
        return kind, self.name_for(kind)

    def name_for(self, kind: Kind) -> str:
        """A name for an object; those of cluster-scoped objects begin with the namespace of the sequence."""
        name = self.draw.pick(NAMES)
        return name if kind.namespaced else f"$ns-{name}"

    def save(self, kind: Kind, name: str = "") -> str:
        """A name under which a response is saved."""
        self._count += 1
        saved_field = f"s{self._count}"
        self.saves.append((saved_field, kind))
        if name and (kind, name) not in self.objects:
            self.objects.append((kind, name))
        return saved_field

    def forget(self) -> None:
        """Stop reading from earlier versions, because the definition of the kinds has changed.

        Kubernetes then starts a new watch cache at the first request.
        """
        self._forgotten = len(self.saves)
        self.lists.clear()

    def saved_field(self, path: str, kind: Kind | None = None, begin: int = 0) -> str:
        """A reference to a field of a saved response, mostly a recent one; empty if there is none."""
        names = [name for name, of in self.saves[begin:] if kind is None or of is kind]
        if not names:
            return ""
        name_chosen = names[-1] if self.draw.chance(60) else self.draw.pick(names)
        return f"${name_chosen}.{path}"

    def save_list(self, kind: Kind) -> str:
        self._count += 1
        self.lists.append((f"s{self._count}", kind))
        return f"s{self._count}"

    def read_version(self, kind: Kind) -> str:
        """A version to read from."""
        lists = [name for name, of in self.lists if of is kind]
        if lists and self.draw.chance(30):
            return f"${self.draw.pick(lists)}.metadata.resourceVersion"
        return self.saved_field("metadata.resourceVersion", kind, self._forgotten) or "0"

    def version(self, kind: Kind) -> str:
        """A version that an object had."""
        return self.saved_field("metadata.resourceVersion", kind) or "0"

    def value(self, field: Field, wrong: int) -> object:
        """A value of a field; in `wrong` percent of the cases an invalid one."""
        is_wrong = bool(field.bad) and (self.draw.chance(wrong) or not field.good)
        return self.draw.pick(field.bad if is_wrong else field.good)

    def fields(self, kind: Kind) -> tuple[Field, ...]:
        """A table of fields to choose from, mostly those of the kind."""
        if self.draw.chance(4):
            return SYSTEM
        return METADATA if self.draw.chance(25) else kind.fields

    def fragments(self, kind: Kind, high: int = 3, wrong: int = 8) -> list[Json]:
        """A few fields, each as an object with only that field."""
        name_chosen = [self.draw.pick(self.fields(kind)) for _ in range(self.draw.number(0, high))]
        name_chosen = [field for field in name_chosen if field.good or self.draw.chance(wrong)]
        return [fragment(field.path, self.value(field, wrong)) for field in name_chosen]

    def options(self, **more: str) -> str:
        """The query of a write."""
        draw, parameters_of_write = self.draw, dict(more)
        if draw.chance(7):
            parameters_of_write["dryRun"] = "All"
        if draw.chance(12):
            parameters_of_write.setdefault("fieldManager", draw.pick(MANAGERS))
        if draw.chance(25):
            parameters_of_write["fieldValidation"] = draw.pick(("Strict", "Warn", "Ignore"))
        return query(**parameters_of_write)


def query(**parameters: str) -> str:
    """A query string with its question mark, or empty. References to responses are not escaped."""
    return f"?{urlencode(parameters, safe='$')}" if parameters else ""
