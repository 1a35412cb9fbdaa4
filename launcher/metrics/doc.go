// Package metrics exports the metrics of a launcher to Prometheus.
//
// [New] returns a collector for a registry of the program. [Serve] is for programs without a
// registry; the launcher command uses it for its metrics address. Both read what
// [launcher.Manager.Stats] has counted since the start of the launcher, so it does not matter when
// they begin, and a missed scrape loses nothing.
//
// There are series for each group, state and outcome, but none for single processes: ids and pids
// are never used again, so a launcher that runs for a year would create millions of series.
// [launcher.Manager.Health] and the events have the processes.
//
// dashboard.json is a dashboard for Grafana, and alerts.yaml has alerting rules for Prometheus.
// docs/reference/launcher-runbook.md says what to do when an alert fires.
package metrics
