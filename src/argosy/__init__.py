"""Argosy runs distributed AI training on Kubernetes: any framework, on any capacity, from a laptop up."""

__version__ = "0.1.0"
