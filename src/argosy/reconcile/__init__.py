"""Reconciles one job: observe, decide, write the status with the Record, execute; and renders its pods."""
