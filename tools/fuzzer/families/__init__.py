"""Each module makes requests of one family: creates, patches, watches and so on."""
