"""Converts the configuration of other gateways into Gateway API objects and a report.

 documents ──> inputs ──> systems ──> Imported ──> rule_hops ──> writer ──> objects ──> admission ──> ImportResult
  YAML, JSON    lookups    fields,     hops with    hops by    what a port
  with lines    and reads  no more     levels       port       requires now

A system's importer records, for each hop, what the old gateway really checked (its level) and what its author assumes that it
checked (its believed level). It does not know the written objects; `writer/` does not know the systems. Each
field of an object that an importer opens is read, or listed in the report: `reader.py` keeps the account.

No event loop, no sockets, no files here: the command reads and writes.
"""
