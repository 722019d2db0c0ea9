package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// ShowHelp is the Run of a program without one.
func (c *Command) ShowHelp(_ context.Context, stdout, _ io.Writer) error {
	_, err := io.WriteString(stdout, c.help())
	return err
}

func (c *Command) help() string {
	var b strings.Builder
	name := c.Name
	switch {
	case len(c.Commands) > 0 && len(c.Settings) > 0:
		name += " [VERB]"
	case len(c.Commands) > 0:
		name += " VERB"
	}
	usage := strings.TrimSpace(name + " [--name value ...] " + c.Arguments)
	fmt.Fprintf(&b, "%s\n\nUsage: %s\n\n", c.About, usage)
	b.WriteString("Flags are written --name value or --name=value, and win over the environment.\n\n")
	plain := strings.NewReplacer("`", "", "**", "")
	for _, s := range c.Settings {
		name := "--" + s.Flag()
		if !s.isFlagAlone() {
			name += ", " + s.Name
		}
		fmt.Fprintf(&b, "  %s (default: %s)\n", name, s.defaultText())
		for _, line := range wrap(plain.Replace(s.Meaning), 70) {
			fmt.Fprintf(&b, "        %s\n", line)
		}
	}
	b.WriteString("\n  -h, --help\n        this text\n  --version\n        the program's version\n\n")
	return b.String() + c.Notes + "\n"
}

// Markdown formats settings as a table for the manual.
func Markdown(rows []Setting) string {
	var b strings.Builder
	b.WriteString("| setting | default | meaning, and what never to do |\n|---|---|---|\n")
	for _, s := range rows {
		name, def := "`--"+s.Flag()+"`", s.defaultText()
		if !s.isFlagAlone() {
			name = "`" + s.Name + "`<br>" + name
		}
		if s.Default != "" {
			def = "`" + def + "`"
		}
		meaning := s.Meaning
		if s.Consequence != "" {
			meaning = strings.TrimSuffix(meaning, ".") + ". " + s.Consequence
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, def, meaning)
	}
	return b.String()
}

// wrap breaks a text at spaces into lines of at most width bytes, if the words allow.
func wrap(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+1+len(word) > width {
			lines = append(lines, word)
		} else {
			lines[last] += " " + word
		}
	}
	return lines
}
