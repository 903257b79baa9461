"""Runs Envoys: starts, observes, replaces and drains them."""
