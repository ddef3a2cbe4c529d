"""batch/v1 Jobs: runs pods to completion and counts each exactly once."""
