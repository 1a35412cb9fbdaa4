// Package deploy contains the example configuration and systemd unit of docs/reference/launcher.md,
// and a test of both.
package deploy
