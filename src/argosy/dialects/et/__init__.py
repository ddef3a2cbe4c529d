"""`TrainingJob`, `ScaleIn`, `ScaleOut`: the API of et-operator, with its names, validation and status."""
