// Package rules reads the file of alerts, and derives others from it.
package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// File has Prometheus' rules, alerts only.
type File struct {
	Groups []Group `json:"groups"`
}

// Group belongs to one program, as rollcall-PROGRAM, or to all, as rollcall.
type Group struct {
	Name  string  `json:"name"`
	Rules []Alert `json:"rules"`
}

// Alert is one rule.
type Alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Read fails on anything but an alert.
func Read(file string) (f File, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &f)
	}
	if err != nil {
		return f, fmt.Errorf("rules: %s: %w", file, err)
	}
	return f, nil
}

// Of keeps some programs' alerts, and those of all.
func (f File) Of(programs ...string) File {
	return File{slices.DeleteFunc(slices.Clone(f.Groups), func(g Group) bool {
		return g.Name != "rollcall" &&
			!slices.ContainsFunc(programs, func(p string) bool { return g.Name == "rollcall-"+p })
	})}
}

// window is a range, or a subquery's range and step.
var window = regexp.MustCompile(`\[[0-9a-z:]+\]`)

// Faster divides all times by ratio. The error names one that is not a time.
func (f File) Faster(ratio int) (faster File, err error) {
	for _, g := range f.Groups {
		g.Rules = slices.Clone(g.Rules)
		for i := range g.Rules {
			r := &g.Rules[i]
			short := func(d string) string {
				s, wrong := shorter(d, ratio)
				if wrong != nil {
					err = fmt.Errorf("rules: %s: %w", r.Alert, wrong)
				}
				return s
			}
			if r.For != "" {
				r.For = short(r.For)
			}
			r.Expr = window.ReplaceAllStringFunc(r.Expr, func(w string) string {
				times := strings.Split(w[1:len(w)-1], ":")
				for i := range times {
					times[i] = short(times[i])
				}
				return "[" + strings.Join(times, ":") + "]"
			})
		}
		faster.Groups = append(faster.Groups, g)
	}
	return faster, err
}

func shorter(d string, ratio int) (string, error) {
	long, err := model.ParseDuration(d)
	return model.Duration(time.Duration(long) / time.Duration(ratio)).String(), err
}

// Write writes a file for Prometheus.
func (f File) Write(file string) error {
	text, err := json.Marshal(f) // JSON is YAML
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}
