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
	r, err := askReplica(t.Context(), "http://ann:secret@"+address)
	require.NoError(t, err)
	require.Equal(t, address, r.Address)
	server.Close()
	_, err = askReplica(t.Context(), "http://ann:secret@"+address)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
