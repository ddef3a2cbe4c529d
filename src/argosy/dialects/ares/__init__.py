"""`AresJob`: the API of AresOperator, with its defaults, its validation, its names and its status."""
