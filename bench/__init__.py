"""Measures the cost of an edit at two sizes, in traffic to a real backend: `make bench`. See README.md."""
