// Package metrics shows Prometheus what a launcher does.
//
// [New] is a collector for a registry of the program's own; [Serve] is for programs that have none, and what the command's
// metrics address is. Both read what [launcher.Manager.Stats] counts from the first moment on, so it does not matter when
// they begin, and a scrape that is missed loses nothing.
//
// There is a series for each group, and for each state or outcome, and none for a process: their names and pids never come
// again, and a launcher that runs for a year would have left millions of them. [launcher.Manager.Health] and the events have the
// processes.
//
// dashboard.json is a dashboard for Grafana, alerts.yaml are rules for Prometheus; docs/launcher-runbook.md says what to do when
// one of those fires.
package metrics
