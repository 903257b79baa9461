// Package ext stands in for the extension point of Traefik's dynamic configuration, which its module does not contain.
package ext

type HTTP struct{}

type Router struct{}
