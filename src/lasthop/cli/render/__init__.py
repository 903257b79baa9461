"""Renders the output of commands, for terminals and for programs."""
