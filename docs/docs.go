// Package docs has the project's documentation, which replicas show beside their status page: a
// runbook must be readable without the internet.
package docs

import "embed"

// Files are the pages, in Markdown, and their pictures.
//
//go:embed *.md *.png reference
var Files embed.FS
