//go:build tools

// Package etcd names the program that conformance/build.py builds, so that go.mod and go.sum pin all it is made of.
package etcd

import _ "go.etcd.io/etcd/server/v3"
