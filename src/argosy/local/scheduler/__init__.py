"""Assigns pods to nodes: one pod at a time, or a whole gang at once."""
