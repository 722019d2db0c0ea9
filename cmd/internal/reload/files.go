package reload

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

// Watched is a [File] of any type.
type Watched interface {
	// Status looks at the file, and returns what is in use.
	Status() Status
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

// Files are those of a program's settings. Its metrics are as of the last Status.
type Files struct {
	files   []Watched
	streaks []*streak.Streak
	log     *slog.Logger
	since   *prometheus.GaugeVec
	failing *prometheus.GaugeVec

	mu    sync.Mutex
	known []time.Time // since when the values are in use
}

// New returns Files, and panics if the metrics cannot be registered.
func New(log *slog.Logger, metrics prometheus.Registerer, files ...Watched) *Files {
	w := &Files{
		files: files, log: log, known: make([]time.Time, len(files)),
		since: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "settings_file_taken_timestamp_seconds",
			Help: "When the value in use was taken from the file of a setting.",
		}, []string{"setting"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "settings_file_failing",
			Help: "1 while the file of a setting cannot be used, and its former value is in use.",
		}, []string{"setting"}),
	}
	for i, f := range files {
		st := f.Status()
		w.known[i] = st.Since
		w.streaks = append(w.streaks, streak.New(log, "the file of a setting cannot be used, the former value stands",
			"the file of a setting can be used", "setting", st.Setting))
	}
	metrics.MustRegister(w.since, w.failing)
	w.Status()
	return w
}

// Status returns the state of each File, and logs what has changed.
func (w *Files) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Status, len(w.files))
	for i, f := range w.files {
		st := f.Status()
		var err error
		failing := 0.0
		if st.Error != "" {
			err, failing = errors.New(st.Error), 1
		}
		w.streaks[i].Note(err)
		if !st.Since.Equal(w.known[i]) {
			w.log.Info("the file of a setting was read again, its new value is in use", "setting", st.Setting)
		}
		w.since.WithLabelValues(st.Setting).Set(float64(st.Since.UnixMilli()) / 1000)
		w.failing.WithLabelValues(st.Setting).Set(failing)
		all[i], w.known[i] = st, st.Since
	}
	return all
}
