package console

import (
	"bytes"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/rollcall-redis/rollcall/docs"
)

// markdown renders the documentation as HTML, and omits HTML in it.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// repository is the target of links that leave the documentation.
const repository = "https://github.com/rollcall-redis/rollcall/blob/main/"

// headingIDs names headings as GitHub does, since links in the pages rely on that.
type headingIDs struct{}

func (headingIDs) Generate(heading []byte, _ ast.NodeKind) []byte {
	return bytes.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
}

func (headingIDs) Put([]byte) {}

type docPage struct {
	Title string
	Body  template.HTML
}

// doc serves the documentation of this version, so that a runbook is available without the
// internet. Headings have the ids that GitHub gives them. /docs/ itself lists the pages.
func (s *HTTP) doc(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/docs/")
	text, err := fs.ReadFile(docs.Files, name)
	switch {
	case name == "":
		name, text, err = "Documentation", docList(), nil
	case err != nil:
		fail(w, http.StatusNotFound, "no such page: "+r.URL.Path)
		return
	case path.Ext(name) == ".svg":
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		write(w, http.StatusOK, "image/svg+xml", text)
		return
	}
	var body bytes.Buffer
	ids := parser.WithContext(parser.NewContext(parser.WithIDs(headingIDs{})))
	if err := markdown.Convert(text, &body, ids); err != nil {
		s.cfg.Logger.Error("cannot show the documentation", "page", name, "error", err)
		fail(w, http.StatusInternalServerError, "this page is broken")
		return
	}
	// The pages are this program's own, and goldmark omits their HTML.
	html := strings.ReplaceAll(body.String(), `href="../`, `href="`+repository)
	s.show(w, "doc.html", docPage{name, template.HTML(html)})
}

// docList is a page with links to all others.
func docList() []byte {
	names, _ := fs.Glob(docs.Files, "*.md") // the pattern is valid
	text := []byte("# Documentation\n\n")
	for _, name := range names {
		text = append(text, "- ["+name+"]("+name+")\n"...)
	}
	return text
}
