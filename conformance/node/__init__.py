"""A kubelet for a machine without a container runtime: Pods as processes in Linux namespaces. README.md says what is in it."""
