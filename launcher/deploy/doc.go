// Package deploy has no code. Its files are shown in docs/launcher.md, and its test reads them.
package deploy
