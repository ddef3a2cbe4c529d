"""apps/v1 Deployments: ReplicaSets that follow one another, so that a change reaches pods step by step."""
