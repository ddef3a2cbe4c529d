"""The local control plane: an API server, controllers and a node agent on one machine."""
