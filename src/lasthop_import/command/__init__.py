"""The command `lasthop import`: reads files or a cluster, writes objects and a report."""
