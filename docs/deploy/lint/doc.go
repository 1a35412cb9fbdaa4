// Package lint has tests only: they check the manifests, the units and the pages around it.
package lint
