// Package api is the HTTP API of cmd/availability: it lets the apps of mitras and customers,
// other services and administrators use an [availability.Mirror]. openapi.yaml describes it, and
// is served as well.
//
// The token decides which calls are allowed: see package token. Errors are problem details (RFC
// 9457). A refused request has changed nothing. After a 503, the outcome is unknown.
package api
