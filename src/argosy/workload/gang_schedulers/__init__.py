"""Who places gangs: one module per back end."""
