"""Each module generates requests of one family: creates, patches, watches and so on."""
