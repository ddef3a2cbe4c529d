"""batch/v1 Jobs: run pods to completion, count them exactly once."""
