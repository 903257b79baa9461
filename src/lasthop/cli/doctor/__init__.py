"""What `lasthop doctor` looks at: this machine (`machine.py`) and a cluster (`run/cluster.py`)."""
