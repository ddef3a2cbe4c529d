"""apps/v1 ReplicaSets: as many pods of a template as wanted."""
