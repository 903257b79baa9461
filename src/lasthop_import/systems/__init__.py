"""The importers, one module or package for each system. Each reads fields and returns an `Imported`; see CONTRIBUTING.md."""
