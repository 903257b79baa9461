"""The local admin address: health, metrics, status, and a page for people."""
