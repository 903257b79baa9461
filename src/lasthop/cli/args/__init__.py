"""Parses the arguments that commands share: targets, objects, addresses."""
