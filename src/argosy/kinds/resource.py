"""Group, version, plural and scope of a kind, and the URL paths that follow from them.

Every struct for an API object has its `Resource` as the class attribute `resource`, so that
`client.get(Pod, "a")` knows the path.
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
        """The URL path of the group and version, without a trailing slash."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(
        self, name: str | None = None, namespace: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection (no name), an object or a subresource.

        For a namespaced kind, no namespace means the collection in all namespaces.
        """
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name}: a namespace is required")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
