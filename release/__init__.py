"""Builds what users install (wheel, sdist, image, chart) and tries each of it as they would. `make release` does it all."""
