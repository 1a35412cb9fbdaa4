package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/swansong-go/swansong/launcher"
)

// A Source knows the positions of the keys of a configuration in its file, as the file was when it
// was read.
type Source struct {
	decoder decoder
	config  *Config
}

// LoadSource is like [Load], and also returns the Source.
func LoadSource(file string) (*Config, *Source, error) { return LoadSourceFunc(file, os.Open) }

// LoadSourceFunc is like [LoadSource], but calls open, instead of [os.Open], to open the file and
// each file of env_file. So a program can say which file it waits for, if that is a pipe. open must
// not be nil.
func LoadSourceFunc(file string, open func(name string) (*os.File, error)) (*Config, *Source, error) {
	return load(file, open)
}

// LoadAgain is like [LoadSource], for a file that was loaded before. It waits for no other program:
// a pipe or a device, as the file itself or in env_file, is an error. Only the null device is not.
func LoadAgain(file string) (*Config, *Source, error) { return load(file, openAgain) }

func load(file string, open opener) (*Config, *Source, error) {
	text, err := readFile(file, open)
	if err != nil {
		return nil, nil, err
	}
	return parse(file, text, open)
}

// Locate adds file, line and key to an error of package launcher, if its cause is in the file. The
// result wraps err.
//
// An error that comes while the launcher runs, such as that of a group that was given up, thereby
// names the line to edit. An error without a place in the file is returned unchanged.
func (s *Source) Locate(err error) error {
	var wrong *launcher.ConfigError
	var givenUp *launcher.GivenUpError
	switch {
	case errors.As(err, &wrong) && wrong.Group != "":
		return s.withPosition(wrong.Group, keys[wrong.Field], wrong.Rule, err)
	// ENOEXEC: the file is executable, but the kernel does not know its format.
	case errors.As(err, &givenUp) && strings.Contains(givenUp.Last, syscall.ENOEXEC.Error()):
		return s.withPosition(givenUp.Group, "command", givenUp.Rule()+"; is it a script without a first line such as #!/bin/sh?", err)
	case errors.As(err, &givenUp):
		return s.withPosition(givenUp.Group, "name", givenUp.Rule(), err)
	case errors.As(err, &wrong) && topKeys[wrong.Field] != "":
		return s.located(topKeys[wrong.Field], wrong.Rule, err)
	case errors.As(err, &wrong) && wrong.Field == "Dir", errors.Is(err, launcher.ErrInUse):
		return s.located("state_dir", strings.TrimPrefix(err.Error(), "launcher: "), err)
	}
	return err
}

// Position returns where the file has a key of a group, or a key of the launcher if group is empty.
// A key that the file does not have is at the innermost mapping around it. Line and column begin at
// 1, and are 0 if the file has no such group.
func (s *Source) Position(group, key string) (line, column int) {
	if group != "" {
		n := s.indexOf(group)
		if n < 0 {
			return 0, 0
		}
		key = join(index("process_groups", n), key)
	}
	at := s.decoder.position(key)
	return at.line, at.column
}

func (s *Source) indexOf(group string) int {
	return slices.IndexFunc(s.config.Groups, func(g Group) bool { return g.Name == group })
}

// withPosition returns err with the position of the key of a group in the file, or err itself if
// the file has no such group.
func (s *Source) withPosition(group, key, rule string, err error) error {
	n := s.indexOf(group)
	if n < 0 {
		return err
	}
	return s.located(join(index("process_groups", n), key), rule, err)
}

// located returns err with the position of a key in the file. If the file does not have the key,
// the position is that of the innermost mapping around it: an error can be that a key is missing.
func (s *Source) located(key, rule string, err error) error {
	at := s.decoder.position(key)
	return &locatedError{&Error{s.decoder.file, at.line, at.column, strings.TrimSuffix(key, "."), rule}, err}
}

// A locatedError has the text of at, the error with the position in the file. It wraps both at and
// err, so errors.Is and errors.As find either.
type locatedError struct {
	at  *Error
	err error
}

func (e *locatedError) Error() string   { return e.at.Error() }
func (e *locatedError) Unwrap() []error { return []error{e.at, e.err} }
