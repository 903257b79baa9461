"""Compares the ways by which a changed route reaches Envoy: as a part of the whole table (RDS), as a virtual host (VHDS), as a
scope (SRDS)."""
