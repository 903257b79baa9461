"""`lasthop judge`: judges the last hop of any Gateway API implementation from outside, by traffic and status.

    cases      one entry each: objects, what the backend serves, what the specification demands
      │
      ▼
    place ───> objects of a case, with its own Service, port, hostname ───> place: a cluster, or a folder of files
      │                                                                           │
      ▼                                                                           ▼
    trial      waits, asks, changes, asks again <─── client ───> gateway ───> backend: records every connection
      │                                                                           │
      ▼                                                                           │
    verdict    compares what was seen with what is demanded <─────────────────────┘
      │
      ▼
    report     text, JSON, JUnit, Markdown, HTML

Nothing here imports Lasthop's engine: a verdict rests on what the client received, what the backend recorded and which
conditions the objects carry.
"""
