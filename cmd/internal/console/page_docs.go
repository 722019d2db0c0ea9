package console

import (
	"bytes"
	"cmp"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/rollcall-redis/rollcall/docs"
)

// markdown omits HTML in a page.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// repository is where links out of the documentation lead.
const repository = "https://github.com/rollcall-redis/rollcall/blob/main/"

// upwards matches links out of a page's folder.
var upwards = regexp.MustCompile(`href="\.\./[^"#]*`)

// headingIDs names headings as GitHub does: links in the pages rely on that.
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
	Root  string // to the replica's own page
	Body  template.HTML
}

// doc serves the documentation of this version: runbooks without the internet.
func (s *HTTP) doc(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/docs/"), "README.md")
	text, err := fs.ReadFile(docs.Files, name)
	if err != nil {
		fail(w, http.StatusNotFound, "no such page: "+r.URL.Path)
		return
	}
	if path.Ext(name) != ".md" {
		write(w, http.StatusOK, mime.TypeByExtension(path.Ext(name)), text)
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
	html := upwards.ReplaceAllStringFunc(body.String(), func(link string) string {
		to := path.Join("docs", path.Dir(name), strings.TrimPrefix(link, `href="`))
		if strings.HasPrefix(to, "docs/") {
			return link
		}
		return `href="` + repository + to
	})
	root := strings.Repeat("../", 1+strings.Count(name, "/"))
	s.show(w, "doc.html", docPage{name, root, template.HTML(html)})
}
