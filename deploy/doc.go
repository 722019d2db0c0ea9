// Package deploy tests the files here, which are meant to be used as they are: alerts and a
// dashboard, manifests for Kubernetes, a container, units for systemd.
package deploy
