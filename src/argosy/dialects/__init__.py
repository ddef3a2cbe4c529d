"""What each API means: the translation of its jobs to the model, or reconcilers of its other kinds."""
