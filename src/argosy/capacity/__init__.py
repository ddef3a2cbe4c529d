"""Machines that are bought for jobs: prices, zones, the life of a machine, providers and drivers."""
