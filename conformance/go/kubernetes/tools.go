//go:build tools

// Package kubernetes names the two servers that conformance/build.py builds, so that go.mod and go.sum pin all they are made of.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
