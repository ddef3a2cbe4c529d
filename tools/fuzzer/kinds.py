"""The description of a kind that sequences use."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.fuzzer.fields import Field, Json, merged


@dataclass(frozen=True, eq=False)
class Kind:
    name: str
    api_version: str
    plural: str
    base: Json
    """The fields besides the name that make an object of this kind valid."""
    fields: tuple[Field, ...]
    status: tuple[Field, ...] = ()
    """Fields of the status, if it is a subresource."""
    scales: bool = False
    typed: bool = True
    """True for kinds of Kubernetes, which accept strategic merge patches."""
    namespaced: bool = True
    always: Json = field(default_factory=dict)
    """Fields that every generated object has."""
    selectors: tuple[str, ...] = ()
    """Field selectors that this kind supports."""

    @property
    def root(self) -> str:
        """The path of the kind's group and version."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    @property
    def collection(self) -> str:
        return (
            f"{self.root}/namespaces/$ns/{self.plural}" if self.namespaced else f"{self.root}/{self.plural}"
        )

    def path(self, name: str, part: str = "") -> str:
        return f"{self.collection}/{name}" + (f"/{part}" if part else "")

    def bare(self, name: str) -> Json:
        """An object with only its kind and name."""
        return {"apiVersion": self.api_version, "kind": self.name, "metadata": {"name": name}}

    def _complete(self, made: Json) -> Json:
        return merged(made, self.always) if isinstance(made.get("metadata"), dict) else made

    def object(self, name: str, fragments: Iterable[Json] = ()) -> Json:
        """A valid object of that name with these fields set."""
        made = merged(self.bare(name), self.base)
        for fragment in fragments:
            made = merged(made, fragment)
        return self._complete(made)
