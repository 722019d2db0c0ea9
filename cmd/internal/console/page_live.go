package console

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"sync"
	"time"
)

// pageParts are templates of one element each, whose id is its name.
var pageParts = []string{"state", "list", "hour", "events", "passes", "acting", "owners", "names", "own"}

// manyRows are too many for a browser to renew each second.
const (
	manyRows  = 200
	manyEvery = 5 * time.Second
	// mostLooks are rendered once for all who want to see the same, others one at a time.
	mostLooks = 10
)

var rendering sync.Mutex

// partsNews is the event "parts".
type partsNews struct {
	Now time.Time `json:"now"`
	// Error is why Redis cannot be asked. Parts then is what this replica knows by itself.
	Error string `json:"error,omitempty"`
	// Parts are changed elements, in HTML.
	Parts []string `json:"parts"`
}

// tellPage sends a page the parts that have changed.
func (s *HTTP) tellPage(r *http.Request) teller {
	wanted, told, seed := lookOf(r), map[string]uint64{}, maphash.MakeSeed()
	failed, listed := false, time.Time{}
	return func(_, now *reading) []byte {
		view := sync.OnceValue(func() pageView { return s.view(now, nil, wanted) })
		news := partsNews{Now: time.Now(), Parts: []string{}}
		if err := now.away(); err != nil {
			news.Error = err.Error()
		} else {
			news.Now = now.status.Now
		}
		for _, name := range pageParts {
			if now.err != nil && name != "own" {
				continue
			}
			if name == "list" && wanted.All && now.err == nil && len(now.status.Instances) > manyRows {
				if time.Since(listed) < manyEvery {
					continue
				}
				listed = time.Now()
			}
			html := now.part(wanted, name, func() ([]byte, error) { return s.rendered(name, partOf(view(), name)) })
			hash := maphash.String(seed, html) // not a copy for each viewer
			if was, is := told[name]; html == "" || is && was == hash {
				continue
			}
			told[name] = hash
			news.Parts = append(news.Parts, html)
		}
		if len(news.Parts) == 0 && failed == (now.err != nil) {
			return nil
		}
		failed = now.err != nil
		text, err := json.Marshal(news)
		if err != nil { // a type unknown to JSON: a fault of the program
			return nil
		}
		return event("parts", text)
	}
}

// part is rendered once for all who want to see the same; "" after an error, which render has
// logged.
func (r *reading) part(wanted look, name string, render func() ([]byte, error)) string {
	type key struct {
		look
		name string
	}
	if r.looks.Add(1) > mostLooks*int64(len(pageParts)) && wanted != (look{}) { // it would keep a copy for each
		rendering.Lock()
		defer rendering.Unlock()
		html, err := render()
		if err != nil {
			return ""
		}
		return string(html)
	}
	one, _ := r.parts.LoadOrStore(key{wanted, name}, sync.OnceValue(func() string {
		html, err := render()
		if err != nil {
			return ""
		}
		return string(html)
	}))
	return one.(func() string)()
}

func partOf(view pageView, part string) any {
	if part == "own" {
		return view.Own
	}
	return view
}
