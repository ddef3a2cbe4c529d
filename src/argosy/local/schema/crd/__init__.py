"""CustomResourceDefinitions: structural schemas, pruning, defaulting, validation, CEL."""
