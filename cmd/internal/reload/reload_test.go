package reload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/cmd/internal/certtest"
	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// volume is a folder as the kubelet mounts a secret: each name leads through ..data, a symbolic
// link that is swapped, to a folder of one version.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(files)
	for name := range files {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), v.path(name)))
	}
	return v
}

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

func (v *volume) swap(files map[string]string) {
	v.t.Helper()
	v.n++
	version := "..version" + string(rune('0'+v.n))
	require.NoError(v.t, os.Mkdir(v.path(version), 0o700))
	for name, text := range files {
		write(v.t, filepath.Join(v.path(version), name), text)
	}
	require.NoError(v.t, os.Symlink(version, v.path("..data_tmp")))
	require.NoError(v.t, os.Rename(v.path("..data_tmp"), v.path("..data")))
}

// bench has a file in a bubble, whose time passes by itself.
type bench struct {
	t     *testing.T
	log   *process.Buffer
	files *Files
}

func watch(t *testing.T, f Watched) *bench {
	t.Helper()
	b := &bench{t: t, log: &process.Buffer{}}
	b.files = New(slog.New(slog.NewTextHandler(b.log, nil)), prometheus.NewRegistry(), f)
	return b
}

// looks returns the state after a look.
func (b *bench) looks() Status {
	time.Sleep(every)
	return b.files.Status()[0]
}

func (b *bench) failing() float64 {
	return testutil.ToFloat64(b.files.failing.WithLabelValues("SECRET_FILE"))
}

func TestAValueIsReadAgainHoweverItsFileIsReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, path, text string){
		"written in place": write,
		"renamed over": func(t *testing.T, path, text string) {
			write(t, path+".new", text)
			require.NoError(t, os.Rename(path+".new", path))
		},
		"removed and made again": func(t *testing.T, path, text string) {
			require.NoError(t, os.Remove(path))
			write(t, path, text)
		},
		"by the swap of a link": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := newVolume(t, map[string]string{"secret": "first\n"})
				path := v.path("secret")
				if replace != nil {
					path = filepath.Join(t.TempDir(), "secret")
					write(t, path, "first\n")
				}
				f, err := Open("SECRET_FILE", Line, path)
				require.NoError(t, err)
				require.Equal(t, "first", f.Get())
				b := watch(t, f)
				began := b.files.Status()[0].Since
				require.Equal(t, Status{Setting: "SECRET_FILE", Since: began}, b.looks())
				require.Empty(t, b.log.String())
				if replace == nil {
					v.swap(map[string]string{"secret": "second\r\n"})
				} else {
					replace(t, path, "second\r\n")
				}
				require.Equal(t, "first", f.Get(), "one look a second")
				time.Sleep(every)
				require.Equal(t, "second", f.Get(), "whoever uses it reads it")
				st := b.looks()
				require.Equal(t, 1, strings.Count(b.log.String(), "its new value is in use"))
				require.True(t, st.Since.After(began))
				require.Empty(t, st.Error)
				require.InDelta(t, float64(st.Since.UnixMilli())/1000,
					testutil.ToFloat64(b.files.since.WithLabelValues("SECRET_FILE")), 0.001)
				require.NotContains(t, b.log.String(), "second")
			})
		})
	}
}

func TestWhatCannotBeUsedLeavesTheFormerValueAndIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string){
		"it is gone":         func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"it is empty":        func(t *testing.T, path string) { write(t, path, "") },
		"a line break alone": func(t *testing.T, path string) { write(t, path, "\n") },
		"two lines":          func(t *testing.T, path string) { write(t, path, "geheim\ngeheimer\n") },
		"a folder": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Mkdir(path, 0o700))
		},
		"far too much": func(t *testing.T, path string) { write(t, path, strings.Repeat("geheim", most)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "secret")
				write(t, path, "first")
				f, err := Open("SECRET_FILE", Line, path)
				require.NoError(t, err)
				b := watch(t, f)
				spoil(t, path)
				b.looks()
				b.looks()
				require.Equal(t, "first", f.Get())
				require.Equal(t, 1.0, b.failing())
				require.NotEmpty(t, b.looks().Error)
				require.Equal(t, 1, strings.Count(b.log.String(), "the former value stands"), b.log.String())
				require.Contains(t, b.log.String(), "SECRET_FILE")
				require.NotContains(t, b.log.String(), "geheim")
				require.NoError(t, os.RemoveAll(path))
				write(t, path, "third")
				b.looks()
				require.Equal(t, "third", f.Get())
				require.Zero(t, b.failing())
				require.Contains(t, b.log.String(), "the file of a setting can be used")
			})
		})
	}
}

func TestAValueIsInUseWhenItHasProvedItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "secret")
		write(t, path, "first")
		f, err := Open("SECRET_FILE", Line, path)
		require.NoError(t, err, "at start nothing is proved: there is no other value")
		var accepted atomic.Value
		accepted.Store("second")
		f.Prove(func(_ context.Context, v string) error {
			if v != accepted.Load() {
				return errors.New("refused")
			}
			return nil
		})
		b := watch(t, f)
		write(t, path, "sec")
		b.looks()
		require.Equal(t, "first", f.Get())
		require.Equal(t, 1.0, b.failing())
		write(t, path, "third")
		b.looks()
		require.Equal(t, "first", f.Get())
		accepted.Store("third")
		b.looks()
		require.Equal(t, "third", f.Get())
		require.Zero(t, b.failing())
		require.Equal(t, 1, strings.Count(b.log.String(), "the former value stands"))
	})
}

func TestPartsThatDoNotBelongTogetherAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newVolume(t, map[string]string{"a": "1", "b": "1"})
		f, err := Open("SECRET_FILE", func(texts []string) (string, error) {
			if texts[0] != texts[1] {
				return "", errors.New("no pair")
			}
			return texts[0], nil
		}, v.path("a"), v.path("b"))
		require.NoError(t, err)
		b := watch(t, f)
		v.swap(map[string]string{"a": "2", "b": "1"})
		b.looks()
		require.Equal(t, "1", f.Get())
		v.swap(map[string]string{"a": "2", "b": "2"})
		b.looks()
		require.Equal(t, "2", f.Get())
	})
}

func TestAFileThatIsNotThereAtStartIsAnErrorThatNamesTheSetting(t *testing.T) {
	t.Parallel()
	_, err := Open("SECRET_FILE", Line, "/geheim")
	require.EqualError(t, err, "SECRET_FILE: the file cannot be read: no such file or directory")
}

func TestTheNextEndOfACertificateIsTold(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second).UTC()
	ca := certtest.New(t, "ca")
	at := func(left ...time.Duration) string {
		var text strings.Builder
		for _, l := range left {
			cert := ca.Device(t, "1", func(c *x509.Certificate) { c.NotAfter = now.Add(l) })
			require.NoError(t, pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
		}
		return text.String()
	}
	for text, want := range map[string]time.Time{
		"a password": {}, at(2*time.Hour, time.Hour): now.Add(time.Hour),
		at(-time.Hour, 3*time.Hour): now.Add(3 * time.Hour), at(-time.Hour, -2*time.Hour): now.Add(-time.Hour),
	} {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, text)
		f, err := Open("FILE", func([]string) (string, error) { return "", nil }, path)
		require.NoError(t, err)
		require.Equal(t, want, f.Status().Ends)
	}
}
