// Package deploy tests the manifests and units in docs/deploy, and the pages that show them.
package deploy
