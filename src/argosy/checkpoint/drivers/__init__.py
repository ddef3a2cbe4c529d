"""What checkpoints are made with and where they are kept: programs, stores and registries."""
