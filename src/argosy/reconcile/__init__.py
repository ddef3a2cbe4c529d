"""One pass over a job: observe, decide, write status with the Record, perform; and the pods it renders."""
