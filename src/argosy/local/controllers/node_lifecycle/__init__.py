"""Nodes that fall silent: marked, tainted, and their pods moved away, as Kubernetes does it."""
