"""Benchmarks. Each figure has a lower bound measured in the same run, so that ratios can be compared."""
