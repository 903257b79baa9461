"""Implements a small API server's admission chain: YAML text to typed objects, or the problems an API server would report.

text -> documents -> metadata -> defaults, unknown fields -> schema -> list keys, CEL rules -> built-in checks -> object
        yaml, scalars  metadata  structural                  validation  cel                  builtin
"""
