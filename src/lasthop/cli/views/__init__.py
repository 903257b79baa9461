"""The sources of commands, a folder, a running gateway or a cluster, each as a `View`."""
