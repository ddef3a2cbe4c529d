"""API types: Argosy's own kinds with their CRDs, and the parts of Kubernetes' kinds that it reads."""
