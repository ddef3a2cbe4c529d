"""The kit by which adapters of frameworks are tested: `argosy conformance framework NAME [--live]`.

It is part of the package, for users test their own adapters with it. It needs nothing that the package itself
does not need.
"""
