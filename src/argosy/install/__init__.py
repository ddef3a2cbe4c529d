"""Installs the operator on a cluster from the Helm chart, for those without Helm."""
