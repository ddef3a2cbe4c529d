"""The model of a training job and every policy over it: pure functions of what is wanted, remembered and
seen."""
