"""Node lifecycle: marks and taints unreachable nodes and evicts their pods, as Kubernetes does."""
