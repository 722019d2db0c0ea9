// Package live tests alerts and dashboard on a real Prometheus that scrapes real processes.
package live
