"""A small Kubernetes API server: the kinds that training needs, stored in SQLite, spoken to by kubectl."""
