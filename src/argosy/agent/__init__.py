"""The node agent: announces the end of its node, and makes checkpoints of containers on it."""
