"""Tests on a real API server and etcd, where `python -m conformance build` has built them; skipped elsewhere."""
