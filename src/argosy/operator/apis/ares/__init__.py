"""Everything that the operator has for AresJobs only."""
