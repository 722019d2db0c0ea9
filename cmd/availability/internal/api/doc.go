// Package api is the HTTP API of cmd/availability, described by openapi.yaml, which it serves. The
// token decides which calls are allowed: see package token. Errors are problem details (RFC 9457).
// A refused request has changed nothing. After a 503, the outcome is unknown.
package api
