"""What tests, ours and other people's, need to set up a world: servers, builders, fakes, a simulator."""
