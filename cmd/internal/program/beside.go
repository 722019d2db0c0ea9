package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
)

const besideTime = 5 * time.Second

// Beside extends the error of an address in use with the flags to type for a second replica: free
// addresses, and the other's embedded Redis if both would be on one. more are addresses beside
// HTTP_ADDR, by setting. typed is a command with %s for flags. Any other error is returned
// unchanged.
func (b *Base) Beside(ctx context.Context, err error, typed string, more ...[2]string) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	var flags []string
	if b.Redis.Embedded() {
		if other := embeddedOf(ctx, b.HTTPAddr); other != "" {
			flags = append(flags, "--redis-url=redis://"+other)
		}
	}
	for _, a := range append([][2]string{{"HTTP_ADDR", b.HTTPAddr}}, more...) {
		if free := freeAddress(ctx, a[1]); free != a[1] {
			flags = append(flags, "--"+cli.Setting{Name: a[0]}.Flag()+"="+free)
		}
	}
	if len(flags) == 0 { // free again, or no port near it is
		return err
	}
	return fmt.Errorf("%w; to run beside the program that has it: "+typed, err, strings.Join(flags, " "))
}

// freeAddress counts the port up.
func freeAddress(ctx context.Context, addr string) string {
	host, text, err := net.SplitHostPort(addr)
	port, bad := strconv.Atoi(text)
	if err != nil || bad != nil { // off
		return addr
	}
	for next := port; next < port+100; next++ {
		free := net.JoinHostPort(host, strconv.Itoa(next))
		if ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", free); err == nil {
			_ = ln.Close()
			return free
		}
	}
	return addr
}

// embeddedOf asks the program at an HTTP address.
func embeddedOf(ctx context.Context, addr string) string {
	if host, port, _ := net.SplitHostPort(addr); host == "" {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	ctx, cancel := context.WithTimeout(ctx, besideTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/status", nil)
	if err != nil {
		return ""
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var status console.Status
	if json.NewDecoder(resp.Body).Decode(&status) != nil {
		return ""
	}
	other, _ := strings.CutPrefix(status.Redis.Server, connect.EmbeddedAt)
	if other == status.Redis.Server || cli.CheckAddress(other) != nil {
		return ""
	}
	return other
}
