"""Defines Secrets with random content that pods of a job mount."""

from msgspec import Struct


class GeneratedSecret(Struct, frozen=True):
    """A Secret with random content, created once before the first pods that mount it."""

    name: str
    generator: str
    roles: tuple[str, ...]
    """Roles whose pods mount it."""
