"""Implements a kubelet for a machine without a container runtime: Pods as processes in Linux namespaces. README.md lists its
features."""
