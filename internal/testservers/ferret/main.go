// Program ferret is a database that speaks MongoDB's protocol, for tests and demos: FerretDB on
// SQLite.
//
//	ferret [-listen 127.0.0.1:0] [-dir FOLDER]
//
// Once it serves, it prints its URI. It ends at once on SIGTERM, on an interrupt, and when its
// standard input ends, so it does not outlive the program at the other end of that pipe. It does
// not log warnings, which concern each command that FerretDB does not support.
//
// It has no users or passwords, and listens only on loopback addresses. It ignores read concern
// and read preference: there is a single copy of the data.
//
// This module is not part of the library, which does not depend on FerretDB.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback `address` to listen on; port 0: a free one")
	dir := flag.String("dir", "", "`folder` of the data; empty: a temporary one, removed at the end")
	flag.Parse()
	if err := run(*listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "ferret:", err)
		os.Exit(1)
	}
}

func run(listen, dir string) (err error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return errors.New("-listen: not a loopback address, as 127.0.0.1 is: there are no passwords here")
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "ferret-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	// Without the slash, FerretDB treats the name as a file.
	data := url.URL{Scheme: "file", Path: dir + "/"}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: listen},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Handler:   "sqlite",
		SQLiteURL: data.String(),
	})
	if err != nil {
		return err
	}
	// The listener accepts since New; connections before Run wait in its queue.
	fmt.Println(db.MongoDBURI())
	// Run's own shutdown would wait seconds for idle connections. SQLite exists only for this
	// process.
	go func() { _ = db.Run(context.Background()) }()
	<-ctx.Done()
	return nil
}
