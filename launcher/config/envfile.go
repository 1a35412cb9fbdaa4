package config

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxEnvFile   = 1 << 20 // bounds how much of an env_file is read
	maxEnvErrors = 20      // bounds how many errors of an env_file are reported; a wrong file has one in each line
)

// readEnvFiles sets FromFiles of a group. If several files have the same variable, the last file
// counts.
func (k *checker) readEnvFiles(at string, g *Group) {
	g.FromFiles = nil
	for n, name := range g.EnvFile {
		key := index(at+".env_file", n)
		k.must(name != "", key, "must be an absolute path")
		k.absolute(key, name)
		if !k.here() || k.wrong[key] {
			continue
		}
		variables, errs := k.readEnvFile(name)
		for _, err := range errs {
			k.fail(key, "%v", err)
		}
		for _, v := range variables {
			k.must(!isReserved(v[0]), key, "%s: %s is reserved: the launcher sets it for the process", name, v[0])
			if g.FromFiles == nil {
				g.FromFiles = map[string]string{}
			}
			g.FromFiles[v[0]] = v[1]
		}
	}
}

// readEnvFile returns the names and values in a file, in its order, and the errors of the file. It
// reads at most maxEnvFile bytes, so a wrong name such as /dev/zero is an error and does not fill
// the memory.
func (k *checker) readEnvFile(name string) (variables [][2]string, errs []error) {
	fail := func(format string, args ...any) ([][2]string, []error) {
		return nil, []error{fmt.Errorf("%s "+format, append([]any{name}, args...)...)}
	}
	f, err := k.open(name)
	if err != nil {
		return fail("cannot be read: %w", withoutPath(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	switch {
	case err != nil:
		return fail("cannot be read: %w", err)
	case len(text) > maxEnvFile:
		return fail("is larger than 1 MiB")
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return fail("is not a text in UTF-8")
	}
	return parseEnvFile(name, string(text))
}

var envLine = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)$`)

// parseEnvFile parses lines of the form NAME=value. Empty lines and lines that begin with # are
// left out. A value can be in single quotes, which change nothing, or in double quotes, in which
// \n, \t, \r, \", \\ and \$ are escapes. Without quotes, the value ends before " #". Nothing is
// expanded. An error does not show the line, which may be a secret.
func parseEnvFile(name, text string) (variables [][2]string, errs []error) {
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "\uFEFF"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := envLine.FindStringSubmatch(line)
		if parts == nil {
			errs = append(errs, fmt.Errorf("%s:%d: must be NAME=value, or a comment that begins with #", name, n+1))
			continue
		}
		value, rule := envValue(parts[2])
		if rule != "" {
			errs = append(errs, fmt.Errorf("%s:%d: the value of %s %s", name, n+1, parts[1], rule))
			continue
		}
		variables = append(variables, [2]string{parts[1], value})
	}
	if more := len(errs) - maxEnvErrors; more > 0 {
		errs = append(errs[:maxEnvErrors], fmt.Errorf("%s: %d more lines are wrong", name, more))
	}
	return variables, errs
}

var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\"`, `"`, `\\`, `\`, `\$`, "$")

// envValue returns the value that a text stands for, or what is wrong with the text. A value cannot
// span lines, so a quote that is forgotten does not swallow the variables below it.
func envValue(text string) (value, rule string) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		for i := range len(text) {
			if text[i] == '#' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t') {
				text = text[:i]
				break
			}
		}
		return strings.TrimSpace(text), ""
	}
	quote, end := text[0], 1
	for end < len(text) && text[end] != quote {
		if text[end] == '\\' && quote == '"' {
			end++
		}
		end++
	}
	if end >= len(text) {
		return "", "begins with a quote and does not end with one; a value has one line"
	}
	if rest := strings.TrimSpace(text[end+1:]); rest != "" && rest[0] != '#' {
		return "", "has text after the closing quote"
	}
	if quote == '"' {
		return escapes.Replace(text[1:end]), ""
	}
	return text[1:end], ""
}
