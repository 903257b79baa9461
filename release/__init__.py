"""Builds what users install (wheel, sdist, image, chart) and tests each as users would. `make release` runs everything."""
