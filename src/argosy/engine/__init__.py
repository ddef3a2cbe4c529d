"""Client, watch, cache, keyed queue, controller loop and leader: the machinery under every controller."""
