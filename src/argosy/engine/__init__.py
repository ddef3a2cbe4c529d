"""The controller runtime: API client, watches, caches, work queue, controllers and leader election."""
