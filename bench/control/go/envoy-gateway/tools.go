//go:build tools

// Package envoygateway pins the version of Envoy Gateway that is built: go.mod and go.sum beside it.
package envoygateway

import _ "github.com/envoyproxy/gateway/cmd/envoy-gateway"
