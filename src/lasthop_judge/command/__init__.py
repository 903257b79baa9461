"""The command; loaded by name, so that nothing else of Lasthop needs this package."""
