package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	superuser = "rollcall"
	nobody    = 65534
	poll      = 20 * time.Millisecond
)

// postgres listens on a socket in its folder, and on no port.
type postgres struct {
	bin, dir string
	life     *process.Process
}

func startPostgres(ctx context.Context, bin, dir string) (*postgres, error) {
	p := &postgres{bin: bin, dir: filepath.Join(dir, "pg")}
	err := os.Mkdir(p.dir, 0o700)
	if err == nil && os.Geteuid() == 0 { // initdb refuses root
		err = errors.Join(os.Chmod(dir, 0o711), os.Chown(p.dir, nobody, nobody))
	}
	if err != nil {
		return nil, fmt.Errorf("availabilitydemo: %w", err)
	}
	initialize := p.command(ctx, "initdb", "-D", p.data(), "-U", superuser, "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	if out, err := initialize.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("availabilitydemo: initdb: %w: %s", err, out)
	}
	return p, p.start(ctx)
}

// command runs as nobody if we are root. On Linux the program ends with the demo, even if that is
// killed.
func (p *postgres) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	argv := append([]string{filepath.Join(p.bin, program)}, args...)
	if runtime.GOOS == "linux" {
		prefix := []string{"setpriv", "--pdeathsig", "QUIT"}
		if os.Geteuid() == 0 {
			id := strconv.Itoa(nobody)
			prefix = append(prefix, "--reuid", id, "--regid", id, "--clear-groups")
		}
		argv = append(prefix, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.dir // nobody may not be able to read the current one
	return cmd
}

func (p *postgres) start(ctx context.Context) (err error) {
	// Only stop ends it, not ctx.
	cmd := p.command(context.WithoutCancel(ctx), "postgres", "-D", p.data(),
		"-c", "listen_addresses=", "-c", "unix_socket_directories="+p.dir, "-c", "unix_socket_permissions=0700",
		"-c", "fsync=off", "-c", "timezone=UTC")
	log := filepath.Join(filepath.Dir(p.dir), "postgres.log")
	if p.life, err = process.Start(cmd, process.Options{Log: log, OwnGroup: true}); err != nil {
		return fmt.Errorf("availabilitydemo: Postgres: %w", err)
	}
	return answers(ctx, "Postgres", p.life, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, p.url())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

func (p *postgres) stop() {
	if p.life == nil || !p.life.Runs() {
		return
	}
	_ = p.life.Signal(syscall.SIGINT) // it may have ended just now
	select {
	case <-p.life.Done():
	case <-time.After(patience):
		p.life.Kill()
	}
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *postgres) url() string { return "postgres://" + superuser + "@/postgres?host=" + p.dir }

// startRedis listens on a socket below dir, whose URL it returns.
func startRedis(ctx context.Context, binary, dir string) (p *process.Process, url string, err error) {
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command(binary, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no")
	p, err = process.Start(cmd, process.Options{Log: filepath.Join(dir, "redis.log"), OwnGroup: true})
	if err != nil {
		return nil, "", fmt.Errorf("availabilitydemo: Redis: %w", err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	err = answers(ctx, "Redis", p, func(ctx context.Context) error { return client.Ping(ctx).Err() })
	if err = errors.Join(err, client.Close()); err != nil {
		p.Kill()
		return nil, "", err
	}
	return p, "unix://" + socket, nil
}

func answers(ctx context.Context, name string, p *process.Process, ask func(context.Context) error) error {
	for end := time.Now().Add(patience); ; {
		err := ask(ctx)
		switch {
		case err == nil:
			return nil
		case !p.Runs():
			return fmt.Errorf("availabilitydemo: %s has ended: %s", name, p.Log())
		case time.Now().After(end):
			return fmt.Errorf("availabilitydemo: waited in vain for %s: %w", name, err)
		case !wait.For(ctx, poll):
			return context.Cause(ctx)
		}
	}
}
