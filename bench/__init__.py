"""`make bench`: what an edit costs, at two sizes, measured in traffic to a real backend. See README.md."""
