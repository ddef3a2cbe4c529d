"""Garbage collection: deletes objects whose owners no longer exist, by ownerReferences."""
