"""Server-side apply: field sets, managed fields, merging. Names follow structured-merge-diff."""
