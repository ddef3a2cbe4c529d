"""The kinds that sequences are about."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.fuzzer.fields import Field, Json, merged


@dataclass(frozen=True, eq=False)
class Kind:
    name: str
    api_version: str
    plural: str
    base: Json
    """What an object of this kind has beside its name, so that it is taken."""
    fields: tuple[Field, ...]
    status: tuple[Field, ...] = ()
    """Fields of its status, if that is written by itself."""
    scales: bool = False
    typed: bool = True
    """Whether it is one of Kubernetes' own, which take strategic merge patches."""
    namespaced: bool = True
    always: Json = field(default_factory=dict)
    """What no object goes without, whatever else is drawn for it."""
    selectors: tuple[str, ...] = ()
    """Field selectors that mean something for this kind."""

    @property
    def root(self) -> str:
        """The path of its version of its group."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    @property
    def collection(self) -> str:
        return (
            f"{self.root}/namespaces/$ns/{self.plural}" if self.namespaced else f"{self.root}/{self.plural}"
        )

    def path(self, name: str, part: str = "") -> str:
        return f"{self.collection}/{name}" + (f"/{part}" if part else "")

    def bare(self, name: str) -> Json:
        """An object with nothing but its kind and name."""
        return {"apiVersion": self.api_version, "kind": self.name, "metadata": {"name": name}}

    def _complete(self, made: Json) -> Json:
        return merged(made, self.always) if isinstance(made.get("metadata"), dict) else made

    def object(self, name: str, fragments: Iterable[Json] = ()) -> Json:
        """A whole object of that name with those fields set."""
        made = merged(self.bare(name), self.base)
        for fragment in fragments:
            made = merged(made, fragment)
        return self._complete(made)
