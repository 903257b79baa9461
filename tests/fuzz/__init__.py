"""Fuzzes the objects of one tenant: the engine raises nothing, Envoy rejects nothing, and the neighbour is served as before.

`make fuzz SECONDS=1800 SEED=7`, or `make fuzz ITERATIONS=500`. Iteration n of a seed is always the same world, so a failure is
repeated by `make fuzz SEED=s FIRST=n ITERATIONS=1`. `corpus/` keeps earlier failures, which run first.
"""
