"""Reconciles SpotInstanceJobs: redundant copies of a training Job on free nodes and on spot VMs."""
