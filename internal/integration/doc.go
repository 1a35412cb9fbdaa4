// Package integration is empty. The packages below it test swansong together with other projects:
// clients and routers, a browser, a checker of histories, and the types of Kubernetes, Nomad,
// Grafana and Prometheus. They are a module of their own, so that the modules for users do not
// require these projects.
package integration
