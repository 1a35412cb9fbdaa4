package config

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Redacted replaces a secret in text.
const Redacted = "[redacted]"

// secrets are patterns of names whose values are usually secret.
var secrets = []string{"*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*_PASS", "*_PWD", "PASS", "*SECRET*", "*TOKEN*", "*CREDENTIAL*",
	"*APIKEY*", "*_KEY", "KEY", "*AUTHORIZATION*", "*COOKIE*", "*_DSN", "BEARER"}

// A Redactor removes secrets from what is printed and logged. It finds them by name: the name of an
// environment variable, the name of a flag, or in any text the name in name=value, name = value,
// name => value, name: value or "name": value. It also removes passwords from URLs. It does not
// find a secret without a name, such as a password that is an argument by itself, or the second
// value of a flag.
//
// A name is compared with patterns of the syntax of path.Match. Case does not matter, and - equals
// _. A Redactor is safe for concurrent use.
type Redactor struct {
	patterns []string
	hints    []string // every name that matches contains, when normalized, at least one of these strings
}

// NewRedactor returns a Redactor for the usual names (*PASSWORD*, *SECRET*, *TOKEN*, *_KEY and
// others), and for names that match one of the patterns.
func NewRedactor(patterns ...string) *Redactor {
	r := &Redactor{patterns: slices.Clone(secrets)}
	for _, p := range patterns {
		r.patterns = append(r.patterns, plain(p))
	}
	for _, p := range r.patterns {
		if h := hint(p); !slices.ContainsFunc(r.hints, func(has string) bool { return strings.Contains(h, has) }) {
			r.hints = append(slices.DeleteFunc(r.hints, func(has string) bool { return strings.Contains(has, h) }), h)
		}
	}
	return r
}

// hint returns a string that every name matching the pattern contains. The string can be empty.
func hint(pattern string) (longest string) {
	if strings.ContainsAny(pattern, `[\`) {
		return ""
	}
	for part := range strings.FieldsFuncSeq(pattern, func(c rune) bool { return c == '*' || c == '?' }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// hinted reports whether s can contain the name of a secret. It exists for speed: few lines of a
// log can, and a search for hints is 30 times as fast as a search for names.
func (r *Redactor) hinted(s string) bool {
	s = plain(s)
	return slices.ContainsFunc(r.hints, func(h string) bool { return strings.Contains(s, h) })
}

// Redactor returns a Redactor that also knows the patterns of the file.
func (c *Config) Redactor() *Redactor { return NewRedactor(c.Redact...) }

var separators = strings.NewReplacer("-", "_", "/", "_", "\u212a", "K") // \u212a is the Kelvin sign, which (?i:k) matches as well

func plain(name string) string { return separators.Replace(strings.ToUpper(name)) }

func (r *Redactor) secret(name string) bool { return matches(r.patterns, name) }

func matches(patterns []string, name string) bool {
	name = plain(strings.TrimLeft(name, "-"))
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// Secret reports whether the value of an environment variable is or contains a secret.
func (r *Redactor) Secret(name, value string) bool { return r.Env(name, value) != value }

// Env returns the value of an environment variable without secrets.
func (r *Redactor) Env(name, value string) string {
	if r.secret(name) && value != "" {
		return Redacted
	}
	return r.Text(value)
}

// Environ returns NAME=value strings without secrets.
func (r *Redactor) Environ(environ []string) []string {
	out := make([]string, len(environ))
	for k, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		out[k] = name + "=" + r.Env(name, value)
	}
	return out
}

// The following patterns match values. The end of a quoted value or of a list can be missing,
// because the line was cut off.
const (
	quoted = `"(?:[^"\\]|\\(?s:.|$))*(?:"|$)|'[^']*(?:'|$)|\$'(?:[^'\\]|\\(?s:.|$))*(?:'|$)`
	inner  = `\\"(?:[^"\\]|\\\\(?:\\["\\]|[^"\\]|$))*(?:\\"|\\?$)` // matches a quoted text inside a JSON string
	bare   = `(?:(?i:Basic|Bearer|Digest|Token)\s+)?[^\s;,&"']+`
	// done matches a value that has already been redacted, with text that another program has put
	// directly after the value.
	done = `\[redacted\](?:[^\s;,&"'\\(){}\[\]<>@][^\s;,&"'\\(){}\[\]<>]*)?`
	// list matches to the end of the text, because the content of a JSON string can have several
	// lines.
	list = `[\[{](?s:.*)`
)

// A form is a way in which a text assigns a value to a name. The first group of the expression name
// matches the name. The first group of the expression value matches what is removed.
type form struct {
	has         string // a string that every text in this form contains
	name, value *regexp.Regexp
	quotes      bool // set if the replacement of the value gets the same quotes as the name
}

var (
	// flag matches a flag and the argument after it, in a command line or in a list of strings,
	// which can be JSON inside JSON.
	flag = &form{"-", regexp.MustCompile(`(?:^|[^\w-])(--?\w[\w.-]*)`), regexp.MustCompile(`^(?:["']?,?\s+|\\?["'],\s*)(` + done + `|` + quoted + `|` + inner + `|[^\s;,&"']+)`), false}
	// pair matches an assignment, as in shells, INI files, programs, and printed maps of some
	// languages.
	pair = &form{"=", regexp.MustCompile(`([\w.-]+)(?:\\?["']?[ \t]*=>[ \t]*|=|[ \t]+:?==?[ \t]*)`), regexp.MustCompile(`^(` + done + `|` + quoted + `|` + inner + `|` + list + `|` + bare + `)`), false}
	// member matches a member of a JSON object, which can be inside a JSON string. After the
	// replacement, the text is still JSON.
	member = &form{":", regexp.MustCompile(`(?:\\?["'])([\w.-]+)(?:\\?["'])\s*:\s*(?:-[ \t]+)*`), regexp.MustCompile(`^(` + quoted + `|` + inner + `|` + list + `|[^\s,}\]]+)`), true}
	// field matches a name and a value as people, YAML and the format %+v write them.
	field = &form{":", regexp.MustCompile(`([\w.-]+):\s*(?:-[ \t]+)*`), regexp.MustCompile(`^(` + done + `|` + quoted + `|` + list + `|` + bare + `)`), false}

	// line matches a line that is a field, and header matches a line that is a header. The values
	// of both can contain white space, commas and quotes, and continue in indented lines.
	line   = regexp.MustCompile(`(?m)^([ \t]*(?:- +)*)(["']?)([\w.-]+)(["']?)(:[ \t]*)(\S(?:.*\S)?)?`)
	header = regexp.MustCompile(`((?i:[\w-]*(?:authorization|cookie)[\w-]*):\s*(?:-[ \t]+)?).+(?:\r?\n[ \t].*)*`)

	// stays matches the value of a JSON member that has already been redacted, and stays unchanged.
	stays = regexp.MustCompile(`(?m)\A\s*["']\[redacted\]["'](?:[ \t]*[}\]]|,[ \t]*["'{\[]|,?[ \t]*\r?$)`)
	// block and items match a field at the end of a line, whose value is in the lines below: a YAML
	// text for block, a list for items.
	block = regexp.MustCompile(`(?m)(["']?)([\w.-]+)(["']?):[ \t]+([|>][-+\d]*(?:[ \t]+#[^"'\n]*)?)[ \t]*\r?$`)
	items = regexp.MustCompile(`(["']?)([\w.-]+)(["']?):()[ \t]*(?:\r?\n[ \t]*)+-[ \t\r\n]`)
	item  = regexp.MustCompile(`^-(?:[ \t\r]|$)`)
	start = regexp.MustCompile(`^[ \t]*(?:- +)*`)

	// userinfo matches the password in a URL. It removes too much rather than leaving part of a
	// password. Some programs write / as \/ in JSON.
	userinfo = regexp.MustCompile(`(:\\*/\\*/[^/?#\s:@]*:)\S*@`)

	openQuote = regexp.MustCompile(`^[\\$]?["']`)
	// rest matches the rest of an argument that is quoted together with its name, as in
	// 'password=hun ter2'. The key of the map is the quote.
	rest = map[string]*regexp.Regexp{
		`'`:  regexp.MustCompile(`^[^']*`),
		`"`:  regexp.MustCompile(`^(?:[^"\\]|\\(?s:.|$))*`),
		`\"`: regexp.MustCompile(`^(?:[^"\\]|\\\\(?:\\["\\]|[^"\\]|$))*`),
	}
	closeQuote = regexp.MustCompile(`\\?["']$`)

	// more matches further parts of a shell word: set -x writes it's as 'it'\''s'.
	more = regexp.MustCompile(`^(?:[^\s;,&"'\\(){}\[\]<>]|"[^"]+"|'[^']*'|\\+')*`)

	// between matches the text between two JSON strings, or after the last one. If the first string
	// ends with a name, this text looks like a quoted value.
	between = regexp.MustCompile(`^\\?["'][\s,:{}\[\]]+(?:\\?["']?)$`)

	// sourceLine matches a position in a source file, as in stack traces. Such a position is not a
	// field.
	sourceLine = regexp.MustCompile(`^[\w.-]+\.(?:go|c|cc|cpp|h|java|js|py|rb|rs|ts):\d+(?:[:)\s]|$)`)
)

// Text returns text, such as a line of a log, without the passwords of URLs, and without the values
// of flags, assignments, fields and JSON members whose name matches a pattern. If s is JSON, the
// result is JSON. A value can extend over several lines of s, but not over several calls.
func (r *Redactor) Text(s string) string {
	url, hinted := strings.Contains(s, "://") || strings.Contains(s, `:\`), r.hinted(s)
	if !url && !hinted && !strings.Contains(s, `\u`) { // an escaped character in JSON, which may be part of a name
		return s
	}
	if shown, ok := r.json(s); ok {
		return shown
	}
	out := s
	if url {
		out = userinfo.ReplaceAllString(out, "${1}"+Redacted+"@")
	}
	if hinted {
		out = r.hideBelow(block, out) // redact blocks first, because what looks like a field inside a YAML text is only text
		out = r.hide(pair, r.hide(flag, out))
		out = r.hide(field, header.ReplaceAllString(r.hide(member, out), "${1}"+Redacted))
		out = r.hideLines(r.hideBelow(items, out)) // redact lists last, when quoted values and lists in brackets are already redacted
	}
	if out != s { // the result can be JSON although s is not, if only the secret was not JSON
		if shown, ok := r.json(out); ok {
			return shown
		}
	}
	return out
}

// hideBelow redacts values that are in the lines below their field. Form is block or items.
func (r *Redactor) hideBelow(form *regexp.Regexp, s string) string {
	var b strings.Builder
	over := 0
	for _, at := range form.FindAllStringSubmatchIndex(s, -1) {
		if at[0] < over || !r.secret(s[at[4]:at[5]]) || r.prose(s[at[4]:], at[5]-at[4]) {
			continue
		}
		indent := start.FindString(s[strings.LastIndexByte(s[:at[0]], '\n')+1 : at[0]])
		n := below(s[at[9]:], len(indent), form == items)
		if form == items && n == 0 {
			continue
		}
		b.WriteString(s[over:at[8]])
		if form == items {
			b.WriteByte(' ')
		}
		quote := s[at[6]:at[7]]
		if s[at[2]:at[3]] != quote { // the quote belongs to a text that contains the field
			quote = ""
		}
		b.WriteString(quote + Redacted + quote)
		over = at[9] + n
	}
	return b.String() + s[over:]
}

// hideLines redacts the values of fields that have a line of their own, including continuation
// lines.
func (r *Redactor) hideLines(s string) string {
	var b strings.Builder
	over := 0
	for _, at := range line.FindAllStringSubmatchIndex(s, -1) {
		name, quote, colon := at[6], s[at[8]:at[9]], at[11]
		if at[0] < over || s[at[4]:at[5]] != quote || !r.secret(s[name:at[7]]) || sourceLine.MatchString(s[name:]) {
			continue
		}
		begins := at[12] < 0 // the value begins in the next line
		n := 0
		if !header.MatchString(s[name:at[1]]) { // headers are already redacted
			n = below(s[at[1]:], at[3]-at[0], begins)
		}
		if begins && n == 0 {
			continue
		}
		if hidden := stays.FindStringIndex(s[colon : at[1]+n]); hidden != nil && quote != "" {
			if strings.Contains(s[colon:colon+hidden[1]], ",") { // in JSON, the value does not continue in the lines below
				continue
			}
			b.WriteString(s[over:max(at[1], colon+hidden[1])])
			over = at[1] + n
			continue
		}
		b.WriteString(s[over:colon])
		if begins && s[colon-1] == ':' {
			b.WriteByte(' ')
		}
		b.WriteString(quote + Redacted + quote)
		over = at[1] + n
	}
	return b.String() + s[over:]
}

// below returns the number of bytes of s, the text after a field, that belong to its value by the
// rules of YAML: lines that are indented more than the field and, if the value begins below the
// field, list items that are indented as much as it.
func below(s string, indent int, begins bool) (n int) {
	for i := strings.IndexByte(s, '\n') + 1; i > 0; {
		next := strings.IndexByte(s[i:], '\n') + 1
		text, _, _ := strings.Cut(s[i:], "\n")
		trimmed := strings.TrimLeft(text, " \t")
		switch by := len(text) - len(trimmed); {
		case strings.TrimRight(trimmed, "\r") == "":
		case by > indent || begins && by == indent && item.MatchString(trimmed):
			n = i + len(strings.TrimRight(text, "\r"))
		default:
			return n
		}
		if next == 0 {
			return n
		}
		i += next
	}
	return n
}

// hide redacts the values of a form. It checks the text after every name, because a value can
// contain another name.
func (r *Redactor) hide(f *form, s string) string {
	if !strings.Contains(s, f.has) {
		return s
	}
	var b strings.Builder
	over := 0
	for _, at := range f.name.FindAllStringSubmatchIndex(s, -1) {
		if at[2] < over || !r.secret(s[at[2]:at[3]]) || f == field && r.prose(s[at[2]:], at[3]-at[2]) {
			continue
		}
		v := f.value.FindStringSubmatchIndex(s[at[1]:])
		if v == nil || between.MatchString(s[at[1]+v[2]:at[1]+v[3]]) {
			continue
		}
		from, to := at[1]+v[2], at[1]+v[3]
		// A value in the next line that begins with a dash, or has a name itself, is left to
		// hideLines.
		next := strings.Contains(s[at[3]:at[1]], "\n")
		if f.has == ":" && (s[from:to] == "-" || next && (s[to-1] == ':' || strings.HasPrefix(s[to:], ":"))) {
			continue
		}
		to, quote := f.extend(s, at, from, to)
		b.WriteString(s[over:from] + quote + Redacted + quote)
		over = to
	}
	return b.String() + s[over:]
}

// extend returns the end of the value s[from:to], including text that a shell joins to the value,
// and the quotes for the replacement of the value. The parameter at contains the positions of the
// match of f.name.
func (f *form) extend(s string, at []int, from, to int) (end int, quote string) {
	switch opens := openQuote.FindString(s[from:to]); {
	case f.quotes:
		quote = s[at[0]:at[2]]
	case f == flag && strings.Contains(s[at[1]:from], ","): // a list item
		quote = opens
	case opens != "": // a shell joins the quoted value with the text after it
		to += len(more.FindString(s[to:]))
	case f == pair && s[at[3]:at[1]] == "=" && !strings.HasPrefix(s[from:], Redacted):
		// The value may be quoted together with its name.
		// Only the two bytes before the name can be its quote.
		if r := rest[closeQuote.FindString(s[max(0, at[2]-2):at[2]])]; r != nil {
			to = max(to, at[1]+len(r.FindString(s[at[1]:])))
		}
	}
	return to, quote
}

// prose reports whether a name of n bytes at the beginning of s is not a field, but an ordinary
// word ("--- PASS: TestX", "no such key: a") that no pattern of the file matches, or a position in
// a source file.
func (r *Redactor) prose(s string, n int) bool {
	word := slices.Contains([]string{"KEY", "PASS"}, strings.ToUpper(s[:n])) && strings.HasPrefix(s[n:], ": ")
	return word && !matches(r.patterns[len(secrets):], s[:n]) || sourceLine.MatchString(s)
}

// Args returns arguments without secrets. After a flag with a matching name and without =, the next
// argument is redacted, even if it is not the value of the flag.
func (r *Redactor) Args(args []string) []string {
	out := slices.Clone(args)
	hide := false
	for k, a := range args {
		name, value, given := strings.Cut(a, "=")
		named := strings.HasPrefix(a, "-") && r.secret(name)
		switch {
		case hide:
			out[k] = Redacted
		case named && given && value != "":
			out[k] = name + "=" + Redacted
		default:
			out[k] = r.Text(a)
		}
		hide = named && !given
	}
	return out
}

// Redacted returns a copy without secrets, for display.
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
