"""CheckpointRestore and StatefulMigration: pods from checkpoints, and checkpoints of whole workloads."""
