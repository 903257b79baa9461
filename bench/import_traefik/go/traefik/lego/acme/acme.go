// Package acme has the names of lego that Traefik is compiled against, and none of its work: nothing here asks for a
// certificate. Lego and the clients of its DNS providers are most of a Traefik, and have no part in what it does to backends.
package acme

import "errors"

var ErrLeftOut = errors.New("this Traefik is built without ACME")

type Account struct{}

type ExtendedAccount struct {
	Account
	Location string
}
