"""A real Kubernetes cluster of one or two nodes on this machine, for tests."""
