"""apps/v1 Deployments: rolls changes of a pod template out over ReplicaSets."""
