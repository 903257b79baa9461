"""The command : reads files or a cluster, writes objects and reports."""
