// Package dashboard tests the dashboard of launcher/metrics with the types of Grafana, and its
// queries and alerts with the parser of Prometheus.
package dashboard
