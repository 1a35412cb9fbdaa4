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
// name of their flag, and of both where they contain a URL with a password, or name=value, name = value, name => value,
// name: value or "name": value with a telling name. What is none of these, such as a password that is an argument by itself,
// or the second value of a flag, it cannot know.
//
// Names are compared with patterns as path.Match has them, without regard to case, and with - taken for _. A Redactor is
// safe for concurrent use.
type Redactor struct {
	patterns []string
	hints    []string // each of the names has one of them in it, when it is made plain
}

// NewRedactor returns a Redactor of the usual names (*PASSWORD*, *SECRET*, *TOKEN*, *_KEY and such), and of those that
// match the patterns as well.
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

// hint returns what every name has in it that the pattern matches, which may be nothing.
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

// hinted reports whether a name that tells may be in s. Few lines of a log have one, and to look for hints costs a thirtieth of
// what it costs to look for all that may be a name.
func (r *Redactor) hinted(s string) bool {
	s = plain(s)
	return slices.ContainsFunc(r.hints, func(h string) bool { return strings.Contains(s, h) })
}

// Redactor returns the Redactor that the file asks for.
func (c *Config) Redactor() *Redactor { return NewRedactor(c.Redact...) }

var separators = strings.NewReplacer("-", "_", "/", "_", "\u212a", "K") // which (?i:k) matches, too

func plain(name string) string { return separators.Replace(strings.ToUpper(name)) }

func (r *Redactor) secret(name string) bool { return matches(r.patterns, name) }

func matches(patterns []string, name string) bool {
	name = plain(strings.TrimLeft(name, "-"))
	return slices.ContainsFunc(patterns, func(p string) bool {
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

// The values that are looked for. The end of a quoted one may have been cut off with the line, and so may that of a list.
const (
	quoted = `"(?:[^"\\]|\\(?s:.|$))*(?:"|$)|'[^']*(?:'|$)|\$'(?:[^'\\]|\\(?s:.|$))*(?:'|$)`
	inner  = `\\"(?:[^"\\]|\\\\(?:\\["\\]|[^"\\]|$))*(?:\\"|\\?$)` // quoted, in a string of JSON
	bare   = `(?:(?i:Basic|Bearer|Digest|Token)\s+)?[^\s;,&"']+`
	// With what only somebody else leaves right behind it.
	done = `\[redacted\](?:[^\s;,&"'\\(){}\[\]<>@][^\s;,&"'\\(){}\[\]<>]*)?`
	// Over all lines that follow, which what a string of JSON says may have.
	list = `[\[{](?s:.*)`
)

// A form is one in which secrets are written: a name, in a group of its own, and then what is taken out, in such a group, too.
type form struct {
	has         string // of every text with such a name
	name, value *regexp.Regexp
	quotes      bool // those of the name are put around what stands in the place of the value
}

var (
	// A flag, and what comes after it, in a command line as shells and lists of strings have it, also those of JSON in JSON.
	flag = &form{"-", regexp.MustCompile(`(?:^|[^\w-])(--?\w[\w.-]*)`), regexp.MustCompile(`^(?:["']?,?\s+|\\?["'],\s*)(` + done + `|` + quoted + `|` + inner + `|[^\s;,&"']+)`), false}
	// An assignment, as shells, INI files, programs and %v of some languages' maps have it.
	pair = &form{"=", regexp.MustCompile(`([\w.-]+)(?:\\?["']?[ \t]*=>[ \t]*|=|[ \t]+:?==?[ \t]*)`), regexp.MustCompile(`^(` + done + `|` + quoted + `|` + inner + `|` + list + `|` + bare + `)`), false}
	// A member of JSON, which may stand in a string of JSON itself, and stays JSON.
	member = &form{":", regexp.MustCompile(`(?:\\?["'])([\w.-]+)(?:\\?["'])\s*:\s*(?:-[ \t]+)*`), regexp.MustCompile(`^(` + quoted + `|` + inner + `|` + list + `|[^\s,}\]]+)`), true}
	// What people, YAML and %+v write.
	field = &form{":", regexp.MustCompile(`([\w.-]+):\s*(?:-[ \t]+)*`), regexp.MustCompile(`^(` + done + `|` + quoted + `|` + list + `|` + bare + `)`), false}

	// A line that is a field, and a header, whose values have white space, commas and quotes in them. They go on in lines that are
	// indented.
	line   = regexp.MustCompile(`(?m)^([ \t]*(?:- +)*)(["']?)([\w.-]+)(["']?)(:[ \t]*)(\S(?:.*\S)?)?`)
	header = regexp.MustCompile(`((?i:[\w-]*(?:authorization|cookie)[\w-]*):\s*(?:-[ \t]+)?).+(?:\r?\n[ \t].*)*`)

	// The value of a member that has been taken out, which stays JSON.
	stays = regexp.MustCompile(`(?m)\A\s*["']\[redacted\]["'](?:[ \t]*[}\]]|,[ \t]*["'{\[]|,?[ \t]*\r?$)`)
	// A field that ends its line, wherever it begins, with a text or with a list of YAML in those below.
	block = regexp.MustCompile(`(?m)(["']?)([\w.-]+)(["']?):[ \t]+([|>][-+\d]*(?:[ \t]+#[^"'\n]*)?)[ \t]*\r?$`)
	items = regexp.MustCompile(`(["']?)([\w.-]+)(["']?):()[ \t]*(?:\r?\n[ \t]*)+-[ \t\r\n]`)
	item  = regexp.MustCompile(`^-(?:[ \t\r]|$)`)
	start = regexp.MustCompile(`^[ \t]*(?:- +)*`)

	// Rather too much of an URL than too little of a password. Some write / as \/ in JSON.
	userinfo = regexp.MustCompile(`(:\\*/\\*/[^/?#\s:@]*:)\S*@`)

	openQuote = regexp.MustCompile(`^[\\$]?["']`)
	// What is left of an argument that was quoted with its name, as in 'password=hun ter2', by its quote.
	rest = map[string]*regexp.Regexp{
		`'`:  regexp.MustCompile(`^[^']*`),
		`"`:  regexp.MustCompile(`^(?:[^"\\]|\\(?s:.|$))*`),
		`\"`: regexp.MustCompile(`^(?:[^"\\]|\\\\(?:\\["\\]|[^"\\]|$))*`),
	}
	closeQuote = regexp.MustCompile(`\\?["']$`)

	// 'it'\''s' is how set -x writes it's.
	more = regexp.MustCompile(`^(?:[^\s;,&"'\\(){}\[\]<>]|"[^"]+"|'[^']*'|\\+')*`)

	// What is between two strings of JSON, or after the last: with a name at the end of the first one, it looks like a quoted value.
	between = regexp.MustCompile(`^\\?["'][\s,:{}\[\]]+(?:\\?["']?)$`)

	// A place in a source file, as stack traces have it, is no field.
	sourceLine = regexp.MustCompile(`^[\w.-]+\.(?:go|c|cc|cpp|h|java|js|py|rb|rs|ts):\d+(?:[:)\s]|$)`)
)

// Text returns a line of text, such as one of a log, as far as it may be seen: without the passwords of URLs, and without the
// values of what has a telling name, be it a flag, name=value, name: value or a member of JSON. What is JSON stays JSON. A value
// may go on in the next lines of s; of those that it is given one by one, a Redactor remembers nothing.
func (r *Redactor) Text(s string) string {
	url, hinted := strings.Contains(s, "://") || strings.Contains(s, `:\`), r.hinted(s)
	if !url && !hinted && !strings.Contains(s, `\u`) { // by which JSON may write any of a name
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
		out = r.hideBelow(block, out) // first: what is in a text is only text
		out = r.hide(pair, r.hide(flag, out))
		out = r.hide(field, header.ReplaceAllString(r.hide(member, out), "${1}"+Redacted))
		out = r.hideLines(r.hideBelow(items, out)) // last: what is quoted, or a list in brackets, is taken out by now, over all its lines
	}
	if out != s { // by which it may have become JSON: what was none of it was in a secret
		if shown, ok := r.json(out); ok {
			return shown
		}
	}
	return out
}

// hideBelow takes out the values of fields that are in the lines below: form is block or items.
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
		if s[at[2]:at[3]] != quote { // it is that of a text with the field in it
			quote = ""
		}
		b.WriteString(quote + Redacted + quote)
		over = at[9] + n
	}
	return b.String() + s[over:]
}

// hideLines takes out the values of lines that are a field, with those below.
func (r *Redactor) hideLines(s string) string {
	var b strings.Builder
	over := 0
	for _, at := range line.FindAllStringSubmatchIndex(s, -1) {
		name, quote, colon := at[6], s[at[8]:at[9]], at[11]
		if at[0] < over || s[at[4]:at[5]] != quote || !r.secret(s[name:at[7]]) || sourceLine.MatchString(s[name:]) {
			continue
		}
		begins := at[12] < 0 // in the next line
		n := 0
		if !header.MatchString(s[name:at[1]]) { // which is taken out by now, up to an empty line
			n = below(s[at[1]:], at[3]-at[0], begins)
		}
		if begins && n == 0 {
			continue
		}
		if hidden := stays.FindStringIndex(s[colon : at[1]+n]); hidden != nil && quote != "" {
			if strings.Contains(s[colon:colon+hidden[1]], ",") { // of JSON, where nothing below is of its value
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

// below returns how many bytes of s, which is what comes after a field, belong to its value, as YAML has it: lines that are indented more
// than its name, and the elements of a list, where the value begins below, that are indented as that is.
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

// hide takes out the values of a form. It looks behind each name, so that none is lost in the value of another.
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
		from, to, quote := at[1]+v[2], at[1]+v[3], ""
		// What is in the next line begins below a dash, or has a name of its own: that is for hideLines.
		next := strings.Contains(s[at[3]:at[1]], "\n")
		if f.has == ":" && (s[from:to] == "-" || next && (s[to-1] == ':' || strings.HasPrefix(s[to:], ":"))) {
			continue
		}
		switch opens := openQuote.FindString(s[from:to]); {
		case f.quotes:
			quote = s[at[0]:at[2]]
		case f == flag && strings.Contains(s[at[1]:from], ","): // an element of a list
			quote = opens
		case opens != "": // which shells put together with what comes next
			to += len(more.FindString(s[to:]))
		case f == pair && s[at[3]:at[1]] == "=" && !strings.HasPrefix(s[from:], Redacted): // quoted with its name, maybe
			// Of what may be much before it, only what can be a quote.
			if r := rest[closeQuote.FindString(s[max(0, at[2]-2):at[2]])]; r != nil {
				to = max(to, at[1]+len(r.FindString(s[at[1]:])))
			}
		}
		b.WriteString(s[over:from] + quote + Redacted + quote)
		over = to
	}
	return b.String() + s[over:]
}

// prose reports whether what looks like a field of a name of n bytes is an ordinary word of a sentence ("--- PASS: TestX", "no
// such key: a"), if nobody has asked for it, or a place in a source file.
func (r *Redactor) prose(s string, n int) bool {
	word := slices.Contains([]string{"KEY", "PASS"}, strings.ToUpper(s[:n])) && strings.HasPrefix(s[n:], ": ")
	return word && !matches(r.patterns[len(secrets):], s[:n]) || sourceLine.MatchString(s)
}

// Args returns arguments, as far as they may be seen: of --name=value the name, and of --name value too, which may hide
// an argument that is none of a secret's business, but never shows one that is.
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
