"""Runs a Gateway on Kubernetes: its Deployment and Services, its certificates, and the controller's own manifests."""
