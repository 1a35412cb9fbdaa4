// Package dashboardtest reads the launcher's dashboard with Grafana's own types, which package metrics does not need to go along
// with.
package dashboardtest
