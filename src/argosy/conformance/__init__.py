"""The conformance kit for framework adapters: `argosy conformance framework NAME [--live]`.

Users test their own adapters with it, so it is part of the package and needs no development dependencies.
"""
