"""Deletes what nobody owns any more, by ownerReference."""
