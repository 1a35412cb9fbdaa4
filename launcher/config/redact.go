package config

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Redacted stands in the place of a secret.
const Redacted = "[redacted]"

// secrets are the patterns of names that everybody uses for what nobody should see.
var secrets = []string{"*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*_PASS", "*_PWD", "PASS", "*SECRET*", "*TOKEN*", "*CREDENTIAL*",
	"*APIKEY*", "*_KEY", "KEY", "*AUTHORIZATION*", "*COOKIE*", "*_DSN", "BEARER"}

// A Redactor takes secrets out of what is printed and logged: of environment variables by their name, of arguments by the
// name of their flag, and of both where they contain a URL with a password or name=value pairs with a telling name. What
// is neither, such as a password that is an argument by itself, it cannot know.
//
// Names are compared with patterns as path.Match has them, without regard to case, and with - taken for _. A Redactor is
// safe for concurrent use.
type Redactor struct{ patterns []string }

// NewRedactor returns a Redactor of the usual names (*PASSWORD*, *SECRET*, *TOKEN*, *_KEY and such), and of those that
// match the patterns as well.
func NewRedactor(patterns ...string) *Redactor {
	r := &Redactor{slices.Clone(secrets)}
	for _, p := range patterns {
		r.patterns = append(r.patterns, plain(p))
	}
	return r
}

// Redactor returns the Redactor that the file asks for.
func (c *Config) Redactor() *Redactor { return NewRedactor(c.Redact...) }

func plain(name string) string {
	return strings.NewReplacer("-", "_", "/", "_").Replace(strings.ToUpper(name))
}

func (r *Redactor) secret(name string) bool {
	name = plain(strings.TrimLeft(name, "-"))
	return slices.ContainsFunc(r.patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// Secret reports whether a variable holds one, in whole or in part.
func (r *Redactor) Secret(name, value string) bool { return r.Env(name, value) != value }

// Env returns the value of an environment variable, as far as it may be seen.
func (r *Redactor) Env(name, value string) string {
	if r.secret(name) && value != "" {
		return Redacted
	}
	return r.Text(value)
}

// Environ returns NAME=value strings as Env does values.
func (r *Redactor) Environ(environ []string) []string {
	out := make([]string, len(environ))
	for k, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		out[k] = name + "=" + r.Env(name, value)
	}
	return out
}

var (
	pair   = regexp.MustCompile(`([\w.-]+)(=)("[^"]*"|'[^']*'|[^\s;,&"']+)`)
	header = regexp.MustCompile(`^([\w.-]+)(:\s*)(.+)$`)
	// A flag, and what comes after it, in a command line as shells and lists of strings have it.
	flagName  = regexp.MustCompile(`(?:^|[\s"'])(--?\w[\w.-]*)`)
	flagValue = regexp.MustCompile(`^["']?,?\s+("[^"]*"|'[^']*'|[^\s;,&"']+)`)

	userinfo = regexp.MustCompile(`(://[^/?#\s:@]*:)\S*@`) // rather too much of an URL than too little of a password
)

// Text returns a line of text, such as one of a log, as far as it may be seen: without the passwords of URLs, and without the
// values of what has a telling name, flags among them.
func (r *Redactor) Text(s string) string {
	s = r.flags(userinfo.ReplaceAllString(s, "${1}"+Redacted+"@"))
	for _, form := range []*regexp.Regexp{pair, header} {
		s = form.ReplaceAllStringFunc(s, func(all string) string {
			m := form.FindStringSubmatch(all)
			if !r.secret(m[1]) {
				return all
			}
			return m[1] + m[2] + Redacted
		})
	}
	return s
}

// flags takes out what Args does, of a command line in a text.
func (r *Redactor) flags(s string) string {
	if !strings.Contains(s, "-") {
		return s
	}
	var b strings.Builder
	done := 0
	for _, at := range flagName.FindAllStringSubmatchIndex(s, -1) {
		from, to := at[2], at[3]
		if from < done || !r.secret(s[from:to]) {
			continue
		}
		if v := flagValue.FindStringSubmatchIndex(s[to:]); v != nil {
			b.WriteString(s[done:to+v[2]] + Redacted)
			done = to + v[3]
		}
	}
	return b.String() + s[done:]
}

// Args returns arguments, as far as they may be seen: of --name=value the name, and of --name value too, which may hide
// an argument that is none of a secret's business, but never shows one that is.
func (r *Redactor) Args(args []string) []string {
	out := slices.Clone(args)
	hide := false
	for k, a := range args {
		name, value, given := strings.Cut(a, "=")
		flag := strings.HasPrefix(a, "-") && r.secret(name)
		switch {
		case hide:
			out[k] = Redacted
		case flag && given && value != "":
			out[k] = name + "=" + Redacted
		default:
			out[k] = r.Text(a)
		}
		hide = flag && !given
	}
	return out
}

// Redacted returns a copy without secrets. It is for looking at: what has been taken out does not come back.
func (c *Config) Redacted() *Config {
	r, out := c.Redactor(), *c
	out.Groups = slices.Clone(c.Groups)
	for k := range out.Groups {
		g := &out.Groups[k]
		g.Args, g.Env = r.Args(g.Args), maps.Clone(g.Env)
		for name, value := range g.Env {
			g.Env[name] = r.Env(name, value)
		}
		g.PreStop = slices.Clone(g.PreStop)
		for n := range g.PreStop {
			g.PreStop[n].Args = r.Args(g.PreStop[n].Args)
		}
	}
	return &out
}
