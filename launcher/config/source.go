package config

import (
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/swansong-go/swansong/launcher"
)

// A Source knows where in a file a configuration stands.
type Source struct {
	decoder decoder
	config  *Config
}

// LoadSource is Load, with the Source.
func LoadSource(file string) (*Config, *Source, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	return parse(file, text, true)
}

// keys are the fields of package launcher, and of its command, that it finds fault with only when it starts, and how they are called here.
var keys = map[string]string{"Name": "name", "Command": "command", "WorkDir": "working_dir", "Listen": "listeners", "PreStop": "pre_stop",
	"Log.Dir": "logs.dir", "Transport.Address": "lifecycle.address", "Transport.TLS": "lifecycle.tls",
	"Admin.Address": "admin.address", "Admin.TLS": "admin.tls", "Metrics.Address": "metrics.address", "TotalDeadline": "total_deadline"}

// Locate adds file, line and key to what package launcher finds fault with, as far as that is in the file. The errors that it
// returns still match those that it was given.
func (s *Source) Locate(err error) error {
	var wrong *launcher.ConfigError
	var lost *launcher.GivenUpError
	switch {
	case errors.As(err, &wrong) && wrong.Group != "":
		return s.at(wrong.Group, keys[wrong.Field], wrong.Rule, err)
	case errors.As(err, &lost) && strings.Contains(lost.Last, syscall.ENOEXEC.Error()): // which only its start shows
		return s.at(lost.Group, "command", lost.Rule()+"; is it a script without a first line as #!/bin/sh?", err)
	case errors.As(err, &lost):
		return s.at(lost.Group, "name", lost.Rule(), err)
	case errors.As(err, &wrong) && keys[wrong.Field] != "":
		return s.located(keys[wrong.Field], wrong.Rule, err)
	case errors.As(err, &wrong) && wrong.Field == "Dir", errors.Is(err, launcher.ErrInUse):
		return s.located("state_dir", strings.TrimPrefix(err.Error(), "launcher: "), err)
	}
	return err
}

func (s *Source) at(group, key, rule string, err error) error {
	n := slices.IndexFunc(s.config.Groups, func(g Group) bool { return g.Name == group })
	if n < 0 {
		return err
	}
	return s.located(join(index("process_groups", n), key), rule, err)
}

func (s *Source) located(key, rule string, err error) error {
	at := s.decoder.position(key)
	return &locatedError{&Error{s.decoder.file, at.line, at.column, strings.TrimSuffix(key, "."), rule}, err}
}

type locatedError struct {
	at  *Error
	err error
}

func (e *locatedError) Error() string   { return e.at.Error() }
func (e *locatedError) Unwrap() []error { return []error{e.at, e.err} }
