"""Trust: CA bundles, PinSets, waivers and client certificates."""
