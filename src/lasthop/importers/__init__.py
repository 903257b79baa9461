"""Imports what other gateways are configured with: their objects in, Gateway API objects and a report out.

 documents ──> inputs ──> systems/NAME.read ──> Imported ──> judged ──> writer ──> objects ──> admission ──> files, report
  YAML, JSON    lookups    fields, and nothing    hops with    what a port      one for all
  with lines    and reads  else                   levels       now requires     systems

A system's importer says, for each hop, what the old gateway really checked (its level) and what its author will think that it
checked (its believed level). It knows nothing of what is written; `judged.py` and `writer/` know nothing of the systems. Each
field of an object that an importer opens is read, or listed in the report: `reader.py` keeps the account.

No event loop, no sockets, no files here: the command reads and writes.
"""
