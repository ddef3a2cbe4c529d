"""PodDisruptionBudgets: keeps in their status how many pods may be evicted."""
