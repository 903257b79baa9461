"""What a command looks at: a folder, a running gateway or a cluster, each as a `View`."""
