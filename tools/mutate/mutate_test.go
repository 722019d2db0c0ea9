package main

import (
	"context"
	"errors"
	"go/importer"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// imported is what the snippets import. It is read once.
var imported = importer.ForCompiler(token.NewFileSet(), "source", nil)

// goChanges lists what is found in a Go file as "from => to".
func goChanges(t *testing.T, src string) []string {
	p, err := newPkg(map[string]string{"x.go": src}, imported)
	require.NoError(t, err)
	return changes(src, goMutants(p, "x.go"))
}

func changes(src string, found []mutant) (list []string) {
	for _, m := range found {
		list = append(list, short(src[m.start:m.end])+" => "+short(m.text))
	}
	return list
}

func TestGoIsChangedWhereATestCouldNotice(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a condition, its operators, an else": {
			"if a < b && ok() { c++ } else { c = 7 }",
			[]string{
				"a < b && ok() => !(a < b && ok())", "else { c = 7 } => ", "&& => ||", "< => <=",
				"c++ => ", "++ => --", "c = 7 => ", "7 => 6",
			},
		},
		"equality is flipped, and not negated as well": {"for a == b { break }", []string{"== => !=", "break => "}},
		"statements": {
			"x := f(); defer g(); go h(); c <- true; y += x",
			[]string{"defer g() => ", "go h() => ", "c <- true => ", "y += x => ", "true => false", "+= => -="},
		},
		"an error that is kept": {"err = fmt.Errorf(1)", []string{"err = fmt.Errorf(1) => "}},
		"what is not for tests": {
			`log.Info("x", "n", 1+2); s.logger.Warn("x"); x := make([]int, 0, 8)
			failpoint.Hit(1); ctx = failpoint.HitPast(ctx, 1)
			if err != nil { slog.Error("x", "n", 5) }; l = l.log.With("n", 6); mu.Lock(); defer mu.Unlock()`, nil,
		},
		"a chosen time":                 {"wait(5 * time.Second)", []string{"wait(5 * time.Second) => ", "* => /"}},
		"the length of a channel":       {"c := make(chan int, 4)", []string{"4 => 5"}},
		"an order of logs":              {`if n, ok := f(); ok && n > 2 { log.Info(1) }; switch { case a: log.Info(1); default: r.log(2) }`, nil},
		"a log beside something else":   {"if ok { log.Info(1); c() }", []string{"ok => !(ok)", "c() => "}},
		"a comparison that is not logs": {"switch { case a > 2: d() }", []string{"> => >=", "2 => 3", "d() => "}},
	} {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, c.want, goChanges(t, "package p\nfunc f() {\n"+c.body+"\n}\n"))
		})
	}
	require.Empty(t, goChanges(t, "package p\nconst a = 5\n"))
}

func TestAReturnLosesEachOfItsResults(t *testing.T) {
	for src, want := range map[string][]string{
		"func f() error { return err }":                          {"err => nil"},
		"func f() error { return fmt.Errorf(1) }":                {"fmt.Errorf(1) => nil"},
		"func f() (n int, s string, e error) { return 0, x, e }": {"0 => 1", `x => ""`, "e => nil"},
		"func f() (a, b T) { return x, T{} }":                    {"x => *new(T)"},
		"func f() *T { return g }":                               {"g => nil"},
		"func f() bool { return true }":                          {"true => false"},
		"func f() (string, any) { return `a`, nil }":             {"`a` => \"\""},
		"func f() (int, error) { return g() }":                   nil,
		"func f() { _ = func() []int { return a } }":             {"_ = func() []int { return a } => ", "a => nil"},
	} {
		require.ElementsMatch(t, want, goChanges(t, "package p\n"+src+"\n"), src)
	}
}

func TestWhatHasNoConsequenceIsNotChanged(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a zero beside an error that was found": {
			"func f() (int, bool, error) { if err := g(); err != nil && a { return 0, false, err }; return 0, false, nil }",
			[]string{
				"err != nil && a => !(err != nil && a)", "!= => ==", "&& => ||", "err => nil",
				"0 => 1", "false => true",
			},
		},
		"the same in a switch": {
			"func f() (int, error) { switch { case err != nil: return 0, err }; return 0, err }",
			[]string{"!= => ==", "err => nil", "0 => 1", "err => nil"},
		},
		"an error that may be nil, too": {
			"func f() (int, error) { if err != nil || a { return 0, err }; return 1, nil }",
			[]string{
				"err != nil || a => !(err != nil || a)", "!= => ==", "|| => &&", "0 => 1", "err => nil", "1 => 0",
			},
		},
		"a zero beside an error of the package": {
			"var errNo error; func f() (int, error) { return 0, errNo }; func g() (int, error) { return 0, io.EOF }",
			[]string{"errNo => nil", "io.EOF => nil"},
		},
		"a zero beside a made error": {`func f() (int, error) { return 0, fmt.Errorf("no") }`, []string{`fmt.Errorf("no") => nil`}},
		"another result beside an error": {
			"var errNo error; func f() (T, int, error) { return x, 1, errNo }",
			[]string{"x => *new(T)", "1 => 0", "errNo => nil"},
		},
		"the border of a time of the clock": {
			`func f() { now := time.Now(); switch { case time.Since(a) > b: c(); case now.Sub(a) < b: c() }
			switch { case now.Before(a) == ok: c() } }`,
			[]string{"c() => ", "c() => ", "== => !=", "c() => "},
		},
		"the border of a time that was handed in": {
			"func f(a, b time.Duration) { switch { case a > b: c() } }", []string{"> => >=", "c() => "},
		},
		"a time of the clock beside zero": {
			"func f() { switch { case time.Until(a) > 0: c() } }", []string{"> => >=", "c() => "},
		},
		"a nanosecond in an order": {
			"func f(a time.Duration) bool { return a < 0 }", []string{"< => <=", "a < 0 => false"},
		},
		"a nanosecond that is returned": {"func f() time.Duration { return 0 }", []string{"0 => 1"}},
		"a nanosecond that means something": {
			"func f(a time.Duration) bool { return a == -2 }", []string{"== => !=", "2 => 3", "a == -2 => false"},
		},
		"a deferred cancel, or stop of a timer": {
			`func f() { ctx, end := context.WithCancelCause(ctx); defer end(nil); t := time.NewTicker(1); defer t.Stop() }`,
			[]string{"1 => 0"},
		},
		"a stop of something else": {"func f() { defer t.Stop() }", []string{"defer t.Stop() => "}},
	} {
		t.Run(name, func(t *testing.T) {
			src := `package p; import ("context"; "fmt"; "io"; "time"); ` + c.body
			require.ElementsMatch(t, c.want, goChanges(t, src))
		})
	}
}

func TestLuaIsChangedButItsStringsAndComments(t *testing.T) {
	src := `-- 1 and 2
local a = 'a == 1' -- 3
if a == 1 and b then return 'x' end
redis.call('SET', KEYS[1],
  a)
redis.call('DEL', KEYS[1])
for i = 8, #ARGV do
  n = @most
end
s = string.sub(s, 1, 8)
return redis.error_reply('no')
`
	found, err := luaMutants(src)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"== => ~=", "1 => 0", "and => or", "a == 1 and b => not (a == 1 and b)",
		"if a == 1 and b then return 'x' end => ",
		"1 => 0", "1 => 0", "redis.call('DEL', KEYS[1]) => ", "8 => 9", "n = @most => ",
		"s = string.sub(s, 1, 8) => ", "8 => 9",
	}, changes(src, found))
}

func TestWhatIsNotLuaIsAnError(t *testing.T) {
	_, err := luaMutants("if x then")
	require.ErrorContains(t, err, "not Lua")
}

func TestTheSampleIsWhatTheSeedSaysHoweverManyWork(t *testing.T) {
	all := make([]mutant, 40)
	for i := range all {
		all[i].line = i
	}
	third := func(_ context.Context, m mutant) result { // every third does not compile
		if m.line%3 == 0 {
			return result{mutant: m, verdict: unfit}
		}
		return result{mutant: m, verdict: caught}
	}
	lines := func(jobs int) (lines []int) {
		for _, r := range sample(t.Context(), all, 10, jobs, io.Discard, third) {
			lines = append(lines, r.line)
		}
		slices.Sort(lines)
		return lines
	}
	require.Equal(t, []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14}, lines(1))
	require.Equal(t, lines(1), lines(4))
	require.Len(t, sample(t.Context(), all, 100, 2, io.Discard, third), 26, "all there are")
}

func TestFewerThanEnoughIsAnError(t *testing.T) {
	results := slices.Repeat([]result{{verdict: caught}}, 18)
	results = append(results, result{verdict: timedOut}, result{verdict: survived})
	require.NoError(t, judge(io.Discard, results))
	var said strings.Builder
	results = append(results, result{mutant: mutant{file: "x.go", line: 3, from: "a", to: "b"}, verdict: survived})
	require.ErrorContains(t, judge(&said, results), "noticed 19 of 21")
	require.Contains(t, said.String(), "x.go:3  a  =>  b")
	require.Error(t, judge(io.Discard, nil))
}

// module writes a module of two packages with tests, and returns its folder and all mutants of q.
func module(t *testing.T) (root string, all []mutant) {
	root = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"q/q.go": `package q

import _ "embed"

//go:embed q.lua
var lua string

func Lua() string { return lua }

func Own(a, b int) int { return a + b }

func Hang() { if false { select {} } }

func ForOthers() bool { return true }

func ForNobody() bool { return true }
`,
		"q/q.lua": "return 1\n",
		"q/q_test.go": `package q

import ("os"; "testing")

func TestOwn(t *testing.T) { if Own(1, 2) != 3 { t.Fatal() } }

func TestLua(t *testing.T) { if Lua() != "return 1\n" { t.Fatal() } }

func TestHang(t *testing.T) { Hang() }

func TestBroken(t *testing.T) { if os.Getenv("BROKEN") != "" { t.Fatal() } }

func TestFlaky(t *testing.T) {
	if once := os.Getenv("FLAKY"); once != "" {
		if _, err := os.Stat(once); err != nil {
			_ = os.WriteFile(once, nil, 0o600)
			t.Fatal()
		}
	}
}
`,
		"p/p_test.go": `package p

import ("m/q"; "testing")

func TestRestsOnQ(t *testing.T) { if !q.ForOthers() { t.Fatal() } }
`,
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	kept := core
	t.Cleanup(func() { core = kept })
	core = []target{{dir: "q", dependents: []string{"p"}}}
	all, err := mutants(root, "q")
	require.NoError(t, err)
	return root, all
}

func TestAMutantIsCaughtByItsOwnPackageOrByOneThatRestsOnIt(t *testing.T) {
	root, all := module(t)
	r, err := newRunner(t.Context(), root, all, io.Discard)
	require.NoError(t, err)
	t.Cleanup(r.close)
	try := func(file string, line int, from, text string) []string {
		src, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		for _, m := range all {
			if m.file == file && m.line == line && m.from == from && (text == "" || m.text == text) {
				res := r.try(t.Context(), m)
				after, err := os.ReadFile(filepath.Join(root, file))
				require.NoError(t, err)
				require.Equal(t, string(src), string(after), "the file is as it was")
				return []string{string(res.verdict), res.by}
			}
		}
		require.Fail(t, "no such mutant")
		return nil
	}
	require.Equal(t, []string{"caught", "q TestOwn"}, try("q/q.go", 10, "+", ""))
	require.Equal(t, []string{"caught", "q TestLua"}, try("q/q.lua", 1, "1", ""), "embedded")
	require.Equal(t, []string{"caught", "p TestRestsOnQ"}, try("q/q.go", 14, "true", ""))
	require.Equal(t, []string{"SURVIVED", ""}, try("q/q.go", 16, "true", ""))
	r.patience = time.Second
	require.Equal(t, []string{"time-out", "q"}, try("q/q.go", 12, "false", "true"))

	t.Setenv("FLAKY", filepath.Join(t.TempDir(), "once"))
	require.Equal(t, []string{"SURVIVED", "q TestFlaky"}, try("q/q.go", 16, "true", ""), "it must fail again")

	require.Equal(t, unfit, r.try(t.Context(), mutant{target: core[0], file: "q/q.go", text: "?"}).verdict)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("Ctrl-C"))
	require.Equal(t, broken, r.try(ctx, all[0]).verdict)
}

func TestTestsThatFailUnchangedAreAnError(t *testing.T) {
	root, all := module(t)
	t.Setenv("BROKEN", "yes")
	_, err := newRunner(t.Context(), root, all, io.Discard)
	require.ErrorContains(t, err, "TestBroken")
}
