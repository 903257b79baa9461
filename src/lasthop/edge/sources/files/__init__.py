"""Reads objects from a folder of YAML files, and admits them like an API server.

folder -> text -> admitted objects   -> objects in force -> Batch
                  admission, content    object_set          loader, source
"""
