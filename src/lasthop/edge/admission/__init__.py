"""Implements an API server's admission chain: YAML text to typed objects, or to the problems that an API server would report.

text -> documents -> metadata -> defaults, unknown fields -> schema -> list keys, CEL rules -> built-in checks -> object
        yaml, scalars  metadata  structural                  validation  cel                  builtin
"""
