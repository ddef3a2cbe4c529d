"""Where a kind lives in the API: group, version, plural, scope, and the URL paths that follow from them.

A struct that can be fetched carries its `Resource` as the class attribute `resource`, so that
`client.get(Pod, "a")` needs no second argument to know the path.
"""

from msgspec import Struct


class Resource(Struct, frozen=True):
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of the group version, without a trailing slash."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(
        self, name: str | None = None, namespace: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of a collection (no name), an object, or one of its subresources.

        A namespaced kind without a namespace is the collection over all namespaces.
        """
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name}: a namespace is needed")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
