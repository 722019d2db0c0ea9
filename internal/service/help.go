package service

import (
	"fmt"
	"strings"
)

// help is what -h prints.
func (c *Command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage: %s\n", c.About, strings.TrimSpace(c.Name+" [--name value ...] "+c.Arguments))
	b.WriteString("\nFlags are written --name value or --name=value, and win over the environment.\n\n")
	for i := range c.Settings {
		s := &c.Settings[i]
		name := "--" + s.flag()
		if !s.isFlagAlone() {
			name += ", " + s.Name
		}
		fmt.Fprintf(&b, "  %s (default: %s)\n", name, s.defaultText())
		for _, line := range wrap(strings.NewReplacer("`", "", "**", "").Replace(s.Meaning), 70) {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	fmt.Fprintf(&b, "\n  -h, --help\n        this text\n  --version\n        the program's version\n\n%s\n", c.Notes)
	return b.String()
}

// Markdown is a table of settings, for the manual.
func Markdown(rows []Setting) string {
	var b strings.Builder
	b.WriteString("| setting | default | meaning | consequence, and what never to do |\n|---|---|---|---|\n")
	for i := range rows {
		s := &rows[i]
		name, def := "`--"+s.flag()+"`", s.defaultText()
		if !s.isFlagAlone() {
			name = "`" + s.Name + "`<br>" + name
		}
		if s.Default != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, def, s.Meaning, s.Consequence)
	}
	return b.String()
}

// wrap breaks a text at spaces into lines of at most width bytes, where words
// allow.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
