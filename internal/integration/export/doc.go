// Package export tests the files that launcher/export writes with the types of Kubernetes and
// Nomad. Two commands check them with programs that are too large for a test:
// launcher/internal/kube/accept with a kube-apiserver, and launcher/internal/nomad/accept with the
// server code of Nomad.
package export
