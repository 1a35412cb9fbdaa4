// Package lifecyclepb is the protocol between a launcher, its processes and its operators,
// generated from the files in launcher/proto, which document it. Processes speak it by package
// launcher/client, operators by the command launcher.
package lifecyclepb
