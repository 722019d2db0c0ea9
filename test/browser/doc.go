// Package browser holds the tests of the page: real replicas on a real Redis, in a headless
// Chromium.
package browser
