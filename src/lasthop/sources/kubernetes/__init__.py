"""Objects from a cluster: only read, never written.

client -> discovery, reflector -> objects -> source
"""
