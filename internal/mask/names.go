package mask

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// secretNames are patterns of names of variables and flags whose values are usually secret.
var secretNames = []string{"*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*_PASS", "*_PWD", "PASS", "*SECRET*", "*TOKEN*", "*CREDENTIAL*",
	"*APIKEY*", "*_KEY", "KEY", "*AUTHORIZATION*", "*COOKIE*", "*_DSN", "BEARER"}

// placeNames are patterns of names whose values say where a secret is, such as the path of a file,
// and are not secret.
var placeNames = []string{"*_FILE", "*_PATH", "*_DIR"}

// Names finds secret values by the names of variables and flags. A name is compared with patterns
// of the syntax of [path.Match]. Case does not matter, and - equals _.
type Names struct{ patterns []string }

// NewNames returns Names with the usual patterns (*PASSWORD*, *SECRET*, *TOKEN*, *_KEY and others)
// and the extra patterns. A name that matches an extra pattern is always secret. A name that
// matches only a usual pattern is not secret if it ends with _FILE, _PATH or _DIR, as in
// DB_PASSWORD_FILE.
func NewNames(extra []string) Names {
	var n Names
	for _, pattern := range extra {
		n.patterns = append(n.patterns, normalized(pattern))
	}
	return n
}

func normalized(name string) string {
	return strings.ReplaceAll(strings.ToUpper(strings.TrimLeft(name, "-")), "-", "_")
}

// Match reports whether the value of a variable or flag with this name is secret.
func (n Names) Match(name string) bool {
	name = normalized(name)
	return matches(n.patterns, name) || matches(secretNames, name) && !matches(placeNames, name)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// Env returns the secrets in variables of the form NAME=value: values with a secret name, and
// passwords in URLs.
func (n Names) Env(environ []string) (secrets []string) {
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if n.Match(name) {
			secrets = append(secrets, value)
		}
		secrets = append(secrets, passwords(value)...)
	}
	return secrets
}

// Args returns the secrets in arguments: values of flags with a secret name, values of assignments
// to a secret name (NAME=value), and passwords in URLs. After a flag with a secret name and without
// =, the next argument is secret, even if it is not the value of the flag.
func (n Names) Args(args []string) (secrets []string) {
	n.eachArg(args, func(_ int, secret string) { secrets = append(secrets, secret) })
	for _, a := range args {
		secrets = append(secrets, passwords(a)...)
	}
	return secrets
}

// eachArg calls the function found for each argument that is a secret value or ends with one, as
// --token=x does. i is the index of the argument.
func (n Names) eachArg(args []string, found func(i int, secret string)) {
	follows := false // the previous argument is a flag with a secret name
	for i, a := range args {
		name, value, given := strings.Cut(a, "=")
		named := n.Match(name)
		switch {
		case follows:
			found(i, a)
		case named && given && value != "":
			found(i, value)
		}
		follows = !follows && named && !given && strings.HasPrefix(a, "-")
	}
}

// HideEnv returns the value of a variable as it may be shown. Unlike a Masker, it also hides short
// values.
func (n Names) HideEnv(name, value string, m *Masker) string {
	if value != "" && n.Match(name) {
		return Mark
	}
	return hide(value, m)
}

// HideArgs returns arguments as they may be shown. Unlike a Masker, it also hides short values.
func (n Names) HideArgs(args []string, m *Masker) []string {
	shown := slices.Clone(args)
	n.eachArg(args, func(i int, secret string) { shown[i] = strings.TrimSuffix(args[i], secret) + Mark })
	for i, a := range shown {
		shown[i] = hide(a, m)
	}
	return shown
}

func hide(value string, m *Masker) string {
	for _, p := range passwords(value) {
		value = strings.ReplaceAll(value, ":"+p+"@", ":"+Mark+"@")
	}
	return m.Mask(value)
}

// userinfo matches the user and the password in a URL. The password may lack the escapes that a URL
// must have, as for a slash.
var userinfo = regexp.MustCompile(`://[^/?#\s:@]*:([^\s@]+)@`)

// portAndPath matches a port and the beginning of a path. The expression userinfo also matches a
// URL without a password that has a port, and an @ in its path. What it takes for the password is
// then the text from the port to the @, which portAndPath recognizes.
var portAndPath = regexp.MustCompile(`^\d{1,5}[/?#]`)

// passwords returns the passwords of the URLs in s. A password with escapes such as %40 is returned
// twice: as it is in s, and unescaped.
func passwords(s string) (found []string) {
	if !strings.Contains(s, "://") {
		return nil
	}
	for _, m := range userinfo.FindAllStringSubmatch(s, -1) {
		if portAndPath.MatchString(m[1]) {
			continue
		}
		found = append(found, m[1])
		if plain, err := url.PathUnescape(m[1]); err == nil && plain != m[1] {
			found = append(found, plain)
		}
	}
	return found
}
