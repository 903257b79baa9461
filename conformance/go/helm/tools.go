//go:build tools

// Package helm names the program that conformance/build.py builds, so that go.mod and go.sum pin all it is made of.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
