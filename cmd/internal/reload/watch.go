package reload

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	every    = time.Second     // from look to look
	lookTime = 3 * time.Second // for one File
)

// Watched is a [File].
type Watched interface {
	look(ctx context.Context) (taken bool, err error)
	status() Status
}

// Status is the state of a File.
type Status struct {
	Setting string `json:"setting"`
	// Since is when the value in use was accepted.
	Since time.Time `json:"since"`
	// Error is why the present contents are not in use.
	Error string `json:"error,omitempty"`
	// Ends is when the next of its certificates expires, or, if all have, when the last did; zero
	// without one.
	Ends time.Time `json:"ends,omitzero"`
}

// Config configures a Watcher.
type Config struct {
	Files      []Watched
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Watcher rereads files.
type Watcher struct {
	files   []Watched
	streaks []*streak.Streak
	log     *slog.Logger
	since   *prometheus.GaugeVec
	failing *prometheus.GaugeVec
}

// New returns a Watcher, or the registerer's error.
func New(c Config) (*Watcher, error) {
	w := &Watcher{
		files: c.Files, log: c.Logger,
		since: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "settings_file_taken_timestamp_seconds",
			Help: "When the value in use was taken from the file of a setting.",
		}, []string{"setting"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "settings_file_failing",
			Help: "1 while the file of a setting cannot be used, and its former value is in use.",
		}, []string{"setting"}),
	}
	for _, f := range c.Files {
		w.streaks = append(w.streaks, streak.New(c.Logger,
			"the file of a setting cannot be used, the former value stands",
			"the file of a setting can be used", "setting", f.status().Setting))
		w.show(f)
	}
	if c.Registerer != nil {
		for _, m := range []prometheus.Collector{w.since, w.failing} {
			if err := c.Registerer.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// Run looks at all files once a second until ctx ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	for wait.For(ctx, every) {
		for i, f := range w.files {
			w.look(ctx, f, w.streaks[i])
		}
	}
	return nil
}

func (w *Watcher) look(ctx context.Context, f Watched, s *streak.Streak) {
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	taken, err := f.look(within)
	if ctx.Err() != nil { // abandoned
		return
	}
	s.Note(err)
	if taken {
		w.log.Info("the file of a setting was read again, its new value is in use",
			"setting", f.status().Setting)
	}
	w.show(f)
}

func (w *Watcher) show(f Watched) {
	st := f.status()
	failing := 0.0
	if st.Error != "" {
		failing = 1
	}
	w.since.WithLabelValues(st.Setting).Set(float64(st.Since.UnixMilli()) / 1000)
	w.failing.WithLabelValues(st.Setting).Set(failing)
}

// Status returns the state of each File.
func (w *Watcher) Status() []Status {
	all := make([]Status, len(w.files))
	for i, f := range w.files {
		all[i] = f.status()
	}
	return all
}
