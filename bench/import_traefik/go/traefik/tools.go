//go:build tools

// Package traefik pins the version of Traefik that is built: go.mod and go.sum beside it.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
