"""A cloud for rehearsals that speaks the API of Compute Engine: its VMs are nodes of the local plane."""
