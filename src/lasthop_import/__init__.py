"""Imports what other gateways are configured with: their objects in, Gateway API objects and a report out.

 documents ──> inputs ──> systems ──> Imported ──> rule_hops ──> writer ──> objects ──> admission ──> ImportResult
  YAML, JSON    lookups    fields,     hops with    hops by    what a port
  with lines    and reads  no more     levels       port       requires now

A system's importer says, for each hop, what the old gateway really checked (its level) and what its author will think that it
checked (its believed level). It knows nothing of what is written; `writer/` knows nothing of the systems. Each
field of an object that an importer opens is read, or listed in the report: `reader.py` keeps the account.

No event loop, no sockets, no files here: the command reads and writes.
"""
