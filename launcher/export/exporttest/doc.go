// Package exporttest has tests only: they have others read what package export writes. What is too big to be asked by a test
// is asked by two programs: a kube-apiserver by launcher/internal/kube/accept, the server code of Nomad by
// launcher/internal/nomad/accept.
package exporttest
