package config

import "strings"

// A choice is a string that has a fixed set of values.
type choice interface{ choices() []string }

func (Condition) choices() []string     { return []string{"started", "healthy", "completed"} }
func (IfUnavailable) choices() []string { return []string{"refuse", "warn"} }
func (Kind) choices() []string          { return []string{"service", "job"} }
func (Grace) choices() []string         { return []string{"advisory", "enforced"} }
func (OnFailure) choices() []string     { return []string{"pause", "rollback", "continue"} }
func (RetryPolicy) choices() []string   { return []string{"manual", "immediate", "exponential"} }
func (RestartPolicy) choices() []string { return []string{"always", "on-failure", "never"} }
func (LauncherDeath) choices() []string { return []string{"kill", "keep"} }
func (Protocol) choices() []string      { return []string{"auto", "grpc", "notify", "signals"} }
func (Transport) choices() []string     { return []string{"unix", "tcp"} }
func (Mask) choices() []string          { return []string{"on", "off"} }
func (Network) choices() []string       { return []string{"tcp", "tcp4", "tcp6", "unix"} }
func (Signal) choices() []string {
	return []string{"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"}
}

func oneOf(all []string) string {
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
