"""apps/v1 ReplicaSets: keeps the desired number of pods of a template."""
