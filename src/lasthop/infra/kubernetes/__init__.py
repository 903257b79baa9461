"""A Gateway on Kubernetes: its Deployment and Services, its certificates, and what the controller itself is installed with."""
