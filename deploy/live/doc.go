// Package live holds the tests of alerts and dashboard on a real Prometheus that scrapes real
// processes.
package live
