"""Validates built-in objects beyond their types, as k8s.io/kubernetes/pkg/apis/*/validation does."""
