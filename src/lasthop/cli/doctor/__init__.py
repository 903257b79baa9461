"""The checks of `lasthop doctor`: this machine (`machine.py`) and a cluster (`cluster.py`, `rights.py`)."""
