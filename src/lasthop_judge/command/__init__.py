"""The command `lasthop judge`. Lasthop imports it by name, so that no other part of Lasthop needs this package."""
