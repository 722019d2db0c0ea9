package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/sourcegraph/conc/pool"
)

// public serves the program's own requests and health, apart from the operator's.
func (s *HTTP) public() http.Handler {
	mux := http.NewServeMux()
	for pattern, handler := range s.cfg.Routes {
		mux.Handle(pattern, handler)
	}
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz(false))
	mux.HandleFunc("/", noSuchPage)
	return mux
}

type front struct {
	ln   net.Listener
	http *http.Server
}

// listen opens HTTP_ADDR first.
func (s *HTTP) listen(ctx context.Context) error {
	open := func(setting, addr string, handler http.Handler) error {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			s.Close()
			return fmt.Errorf("console: %s: %w", setting, err)
		}
		s.fronts = append(s.fronts, front{ln, s.server(handler)})
		s.address = reachable(ln.Addr()) // the operator's is the last one
		return nil
	}
	if s.cfg.OperatorAddr == "" {
		return open("HTTP_ADDR", s.cfg.Addr, s.operator)
	}
	if err := open("HTTP_ADDR", s.cfg.Addr, s.public()); err != nil {
		return err
	}
	return open("OPERATOR_ADDR", s.cfg.OperatorAddr, s.operator)
}

// once closes the connection after a chunked request. If it also had a Content-Length, which is no
// longer visible here, a gateway may see its end elsewhere: it has not inspected the bytes after it
// (RFC 9112, section 6.1).
func once(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

func (s *HTTP) server(handler http.Handler) *http.Server {
	server := &http.Server{
		Handler:           once(handler),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    mostHeader,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // peers' faults
	}
	bound(server, s.cfg.MaxConns)
	return server
}

// Addr is HTTP_ADDR as bound.
func (s *HTTP) Addr() string { return s.fronts[0].ln.Addr().String() }

// OperatorAddr is the address of status, page and admin, as bound.
func (s *HTTP) OperatorAddr() string { return s.fronts[len(s.fronts)-1].ln.Addr().String() }

// Close is for when Run has not begun.
func (s *HTTP) Close() {
	for _, f := range s.fronts {
		_ = f.ln.Close()
	}
}

// serve returns when ctx ends or a listener fails. Requests end with ctx too, or a requested sweep
// would outlast it.
func (s *HTTP) serve(ctx context.Context) error {
	serving := pool.New().WithContext(ctx).WithCancelOnError()
	for _, f := range s.fronts {
		serving.Go(func(ctx context.Context) error {
			f.http.BaseContext = func(net.Listener) context.Context { return ctx }
			if err := f.http.Serve(f.ln); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		serving.Go(func(ctx context.Context) error {
			<-ctx.Done()
			bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			if f.http.Shutdown(bound) != nil {
				_ = f.http.Close() // a client that still reads has had its time
			}
			return nil
		})
	}
	if err := serving.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

func (s *HTTP) warnOpen() {
	host, _, _ := net.SplitHostPort(s.cfg.Addr)
	local := net.ParseIP(host).IsLoopback() || host == "localhost"
	if len(s.cfg.Routes) == 0 || len(s.fronts) > 1 || local {
		return
	}
	s.cfg.Logger.Warn("status page and metrics are served to everybody who reaches HTTP_ADDR: set OPERATOR_ADDR",
		"addr", s.Addr())
}
