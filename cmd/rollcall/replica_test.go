package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPasswordInTheURLOfAReplicaIsNotShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, `{"instance": "one"}`)
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	f := fleet{http: []string{"http://ann:secret@" + address}}
	says := f.replicas(t.Context())[0]
	require.Equal(t, []string{address, "one"}, []string{says.Address, says.Instance})
	server.Close()
	says = f.replicas(t.Context())[0]
	require.NotEmpty(t, says.Error)
	require.NotContains(t, says.Error, "secret")
}
