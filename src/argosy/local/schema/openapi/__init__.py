"""OpenAPI documents of the served kinds, versions 2 and 3."""
