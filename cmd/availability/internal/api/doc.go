// Package api is the HTTP API of cmd/availability: what mitras' apps, customers' apps, other
// services and administrators ask of an [availability.Mirror]. It is described in openapi.yaml,
// which is served as well.
//
// Who may call what is said by the token: see package token. Errors are problem details (RFC 9457).
// A request that is refused has changed nothing. After a 503 it is not known whether it has.
package api
