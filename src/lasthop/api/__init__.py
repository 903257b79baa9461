"""What users write: the Kubernetes and Gateway API objects as frozen structs, no logic.

Only fields that Lasthop reads are declared; a change to any other field compares equal and wakes nothing.
"""
