"""`lasthop judge`: tests how any Gateway API implementation verifies its backends, by traffic and status.

    cases      one entry each: objects, what the backend serves, what the specification requires
      │
      ▼
    objects ─> objects of a case, with its own Service, port, hostname ───> testbed: a cluster, or a folder of files
      │                                                                           │
      ▼                                                                           ▼
    trial      waits, asks, changes, asks again <─── client ───> gateway ───> backend: records every connection
      │                                                                           │
      ▼                                                                           │
    verdict    compares the observation with the requirement  <─────────────────────┘
      │
      ▼
    report     text, JSON, JUnit, Markdown, HTML

This package does not import Lasthop's engine. A verdict rests only on the client's response, the backend's record of its
connections, and the conditions of the objects.
"""
