package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Completion prints a shell's completion script for c, whose command it must be.
func Completion(c *Command) *Command {
	shells := map[string]func(*Command) string{"bash": bash, "zsh": zsh, "fish": fish}
	shell := ""
	return &Command{
		Name: c.Name + " completion",
		About: fmt.Sprintf(`%[1]s completion prints a script for a shell, with which it completes commands and
flags. Into the file that the shell reads at its start:

  bash   source <(%[1]s completion bash)
  zsh    source <(%[1]s completion zsh)      behind compinit
  fish   %[1]s completion fish | source`, c.Name),
		Arguments: "bash|zsh|fish",
		Check: func(in *Input) {
			if len(in.Args) != 1 || shells[in.Args[0]] == nil {
				in.Fault("expected one of bash, zsh and fish")
				return
			}
			shell = in.Args[0]
		},
		Run: func(_ context.Context, stdout, _ io.Writer) error {
			_, err := io.WriteString(stdout, shells[shell](c))
			return err
		},
		Notes: "Exit status: 0, 2 on wrong usage.",
	}
}

func (c *Command) word(of *Command) string { return strings.TrimPrefix(of.Name, c.Name+" ") }

func (c *Command) flags() (all []string) {
	for _, s := range c.Settings {
		all = append(all, "--"+s.Flag())
	}
	return append(all, "--help")
}

func (c *Command) words() (all []string) {
	for _, sub := range c.Commands {
		all = append(all, c.word(sub))
	}
	return all
}

func (c *Command) arguments() []string {
	if !strings.Contains(c.Arguments, "|") || strings.ToLower(c.Arguments) != c.Arguments {
		return nil
	}
	return strings.Split(c.Arguments, "|")
}

func (c *Command) summary(of *Command) string {
	text := strings.Join(strings.Fields(strings.TrimPrefix(of.About, of.Name+" ")), " ")
	if end := strings.IndexAny(text, ",.:;"); end > 0 {
		text = text[:end]
	}
	return strings.ReplaceAll(text, "'", "")
}

// bash avoids what bash 3 lacks.
func bash(c *Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# completion of %s for bash\n_%[1]s() {\n  local words=\"\"\n", c.Name)
	fmt.Fprintf(&b, "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    words=%q\n", strings.Join(c.words(), " "))
	b.WriteString("  else\n    case \"${COMP_WORDS[1]}\" in\n")
	for _, sub := range c.Commands {
		fmt.Fprintf(&b, "    %s) words=%q ;;\n", c.word(sub),
			strings.Join(append(sub.arguments(), sub.flags()...), " "))
	}
	b.WriteString("    esac\n  fi\n")
	b.WriteString("  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n")
	fmt.Fprintf(&b, "complete -F _%s %[1]s\n", c.Name)
	return b.String()
}

func zsh(c *Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# completion of %[1]s for zsh\n_%[1]s() {\n", c.Name)
	b.WriteString("  if (( CURRENT == 2 )); then\n    local -a words_of\n    words_of=(\n")
	for _, sub := range c.Commands {
		fmt.Fprintf(&b, "      '%s:%s'\n", c.word(sub), c.summary(sub))
	}
	b.WriteString("    )\n    _describe command words_of\n    return\n  fi\n  case $words[2] in\n")
	for _, sub := range c.Commands {
		fmt.Fprintf(&b, "  %s) compadd -- %s ;;\n", c.word(sub),
			strings.Join(append(sub.arguments(), sub.flags()...), " "))
	}
	fmt.Fprintf(&b, "  esac\n}\ncompdef _%s %[1]s\n", c.Name)
	return b.String()
}

func fish(c *Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# completion of %s for fish\ncomplete -c %[1]s -f\n", c.Name)
	for _, sub := range c.Commands {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d '%s'\n", c.Name, c.word(sub),
			c.summary(sub))
	}
	for _, sub := range c.Commands {
		on := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", c.Name, c.word(sub))
		for _, word := range sub.arguments() {
			fmt.Fprintf(&b, "%s -a %s\n", on, word)
		}
		for _, flag := range sub.flags() {
			fmt.Fprintf(&b, "%s -l %s\n", on, strings.TrimPrefix(flag, "--"))
		}
	}
	return b.String()
}
