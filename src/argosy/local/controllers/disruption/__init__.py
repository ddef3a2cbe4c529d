"""PodDisruptionBudgets: how many pods may be evicted now, kept in their status."""
