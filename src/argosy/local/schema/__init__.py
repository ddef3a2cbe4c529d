"""What Kubernetes knows about the shape of objects, as pure functions: no I/O, no clock, no state."""
