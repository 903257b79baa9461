"""Gateways, GatewayClasses, ListenerSets and listeners: who owns them, what they bind, what the operator permits."""
