// Package suite is the official Gateway API conformance suite, unmodified, as one test binary.
package suite

import (
	"flag"
	"testing"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
)

// Later releases have these two flags of their own; this one wants them filled in by those who run it.
var (
	usable   = flag.String("usable-address", "", "an address that a Gateway can be given")
	unusable = flag.String("unusable-address", "", "an address that it cannot be given")
)

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	options.UsableNetworkAddresses = addresses(*usable)
	options.UnusableNetworkAddresses = addresses(*unusable)
	conformance.RunConformanceWithOptions(t, options)
}

func addresses(value string) []v1.GatewaySpecAddress {
	kind := v1.IPAddressType
	return []v1.GatewaySpecAddress{{Type: &kind, Value: value}}
}
