"""Reads objects from a cluster; never writes.

client -> discovery, reflector -> objects -> source
"""
