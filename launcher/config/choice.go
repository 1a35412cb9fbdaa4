package config

import (
	"strings"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A choice is a string that has a fixed set of values.
type choice interface{ choices() []string }

func (Kind) choices() []string      { return []string{"service", "job"} }
func (Grace) choices() []string     { return []string{"advisory", "enforced"} }
func (Transport) choices() []string { return []string{"unix", "tcp"} }
func (Mask) choices() []string      { return []string{"on", "off"} }
func (Network) choices() []string   { return []string{"tcp", "tcp4", "tcp6", "unix"} }
func (Signal) choices() []string {
	return []string{"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"}
}

// choicesOf returns the values that a setting with the type of v can have, nil if it can have any.
func choicesOf(v any) []string {
	if c, ok := v.(choice); ok {
		return c.choices()
	}
	return spec.Choices(v)
}

func oneOf(all []string) string {
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
