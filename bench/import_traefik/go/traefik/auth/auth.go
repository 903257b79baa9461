// Package auth has the names that Traefik's basicAuth and digestAuth are compiled against, and lets nobody in: Traefik's own
// fork of the library has no release, and neither middleware has a part in what Traefik does to backends.
package auth

import "net/http"

type BasicAuth struct {
	Realm   string
	Secrets func(user, realm string) string
}

func (*BasicAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

func CheckSecret(string, string) bool { return false }

type DigestAuth struct{}

func NewDigestAuthenticator(string, func(user, realm string) string) *DigestAuth {
	return &DigestAuth{}
}

func (*DigestAuth) CheckAuth(*http.Request) (string, *string) { return "", nil }

func (*DigestAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, _ *http.Request) { refuse(w) }

func DigestAuthParams(string) map[string]string { return nil }

func refuse(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
