"""The model of a training job, and all policies as pure functions of its spec, Record and observed state."""
