"""Gateways, GatewayClasses, ListenerSets and listeners: ownership, addresses and ports, and the operator's rules."""
