// Package deploy holds the tests of the files here, which are meant to be used as they are:
// alerts and a dashboard for Prometheus and Grafana, manifests for Kubernetes, a container, units
// for systemd.
package deploy
