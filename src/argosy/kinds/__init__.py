"""API types: our own kinds, the parts of Kubernetes' kinds that we read, and the CRDs made from them."""
