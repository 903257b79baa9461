"""Provides programs that write files of this repository."""
