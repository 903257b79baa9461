"""Certificates and where trust comes from: CA bundles, PinSets, waivers, client certificates."""
