module lasthop/bench/traefik

go 1.26.0

require github.com/traefik/traefik/v3 v3.7.13

replace (
	github.com/abbot/go-http-auth => ./auth
	github.com/go-acme/lego/v5 => ./lego
	github.com/gorilla/mux => github.com/containous/mux v0.0.0-20250523120546-41b6ec3aed59
	github.com/traefik/traefik/dynamic/ext => ./ext
)
