"""The dialect of TrainingRun, Argosy's own API."""
