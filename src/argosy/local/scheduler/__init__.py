"""Decides which node runs which pod: one pod at a time, or a whole gang at once."""
