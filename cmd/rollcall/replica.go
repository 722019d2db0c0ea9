package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/console"
)

const replicaTimeout = 5 * time.Second

func statusOf(ctx context.Context, base string) (s console.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	_, err = request(ctx, http.MethodGet, base+"/api/v1/status", "", &s)
	return s, err
}

type refusal struct {
	Status int
	Text   string `json:"error"`
	Leader string `json:"leader"` // of status 409

	base string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s answers %d: %s", r.base, r.Status, r.Text)
}

// request decodes a successful answer into to; of another, the error is a *refusal.
func request(ctx context.Context, method, address, token string, to any) (status int, err error) {
	status, body, err := call(ctx, method, address, token)
	if err != nil {
		return status, err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return status, fmt.Errorf("%s: the answer is not understood: %w", hostOf(address), err)
	}
	return status, nil
}

// hostOf leaves a password out.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

func call(ctx context.Context, method, address, token string) (status int, body []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, nil, fmt.Errorf("--http: expected a URL such as http://10.0.0.7:8080")
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: replicaTimeout}).DialContext},
		// A redirect could send the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return res.StatusCode, nil, fmt.Errorf("%s: read the answer: %w", u.Host, err)
	}
	if res.StatusCode/100 != 2 {
		no := &refusal{Status: res.StatusCode, base: u.Host}
		if json.Unmarshal(body, no) != nil || no.Text == "" {
			no.Text = "no replica of this project is there"
		}
		return res.StatusCode, nil, no
	}
	return res.StatusCode, body, nil
}
