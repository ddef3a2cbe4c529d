"""What each training framework needs in its pods, one module a framework."""
