package config_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/launcher/config"
)

// Redacting a text a second time must change nothing, and JSON must still be JSON after it has been
// redacted.
func FuzzRedactor(f *testing.F) {
	for _, text := range []string{
		`{"msg":"no password=","user":"kv"}`, `{"args":["--token","hunter2",{"a":"--token"}],"n":-1e3}`, `[ "password", {"token" : [1, "2"]} ]`,
		`"{\"m\":\"no password=\",\"n\":\"kv\"}"`, `12:30 {"msg":"token = \"a\"","n":1}`, "--token 'a b' --api-key=c\\", "password: [a, b", "PASS: x",
		"a://b:c@d token==x, secret => 'y", `{"passwords":{"a":{"b":[]}}}`, "Authorization: Bearer x", "token.go:12: --secret", `token=""0`, `{'secret': 'a', 'n': 1}`,
		"Cookie: a\r\n b\n\tc\n\n d", "token: {\n a\n}", `{"t\u006fken":"a"}`, "token = [a, b] token=x", `--token 'a'\''b' token=[redacted]b https://token:c@d`, `"a:\/\/b:c@d"`, "Cookie: \r\n\r\n a", "Cookie: \n 0", "a:\n - token: b c\n", "token: |\n  a\n\n  b\nc", "tokens:\n- a\n- b", "- Cookie: \n- }", "- \"token\":\n- password: a", "a: token: |\n  b", "token:\n-\n  a: b", "token:\r\n a: \"\r\n  b\"", "\"pass=\"\" a", "\"pass:\\ \"", "\"pass:\\&\"", "'--token=a b' --token=$'a\\'b c'", `{"http://u:b@c/":1,"password=b":{"a":"--token=b"}}`,
	} {
		f.Add(text)
	}
	r := config.NewRedactor("*-pin")
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Text(text)
		if twice := r.Text(once); twice != once {
			t.Errorf("%q is redacted to %q, and that to %q", text, once, twice)
		}
		if json.Valid([]byte(text)) && !json.Valid([]byte(once)) {
			t.Errorf("%q is JSON, but the result %q is not", text, once)
		}
	})
}

// A generator makes JSON in which some texts are secret and the others must stay visible.
type generator struct {
	*rand.Rand
	secrets, seen int
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (g *generator) name() string {
	return pick(g.Rand, "password", "DB_PASSWORD", "api-token", "Authorization", "client_secret", "set-cookie", "card-pin")
}

// secret returns a random text that must be redacted. If word is true, the text consists only of
// letters; otherwise it has special characters.
func (g *generator) secret(word bool) string {
	g.secrets++
	s := fmt.Sprint("hunter", g.IntN(1000))
	if word {
		return s
	}
	for range g.IntN(8) {
		s += pick(g.Rand, `"`, `\`, "'", ",", "}", "]", ":", "=", " ", "\n", "\t", "é", "\u2028", "<", "@", "://", `\"`, `",`, "hunter2")
	}
	return s
}

// plain returns a text that must stay visible.
func (g *generator) plain() string {
	g.seen++
	return fmt.Sprintf("seen%d", g.seen)
}

func (g *generator) message() string {
	end := pick(g.Rand, "", " ", " of kv")
	return g.plain() + pick(g.Rand, " ", " {", ` "`, ", ") + pick(g.Rand,
		func() string { return g.name() + "=" + g.secret(true) },
		func() string { return g.name() + ": " + g.secret(true) },
		func() string { return g.name() + ` = "` + g.secret(true) + ` ` + g.secret(true) + `"` },
		func() string { return "--" + g.name() + " " + g.secret(true) },
		func() string {
			return "--" + g.name() + " '" + g.secret(true) + `'\''` + g.secret(true) + " " + g.secret(true) + "'"
		},
		func() string { return g.name() + pick(g.Rand, "=", ": ", " = ") + config.Redacted + g.secret(true) },
		func() string {
			return "http:" + pick(g.Rand, "//", `\/\/`) + "kv:" + g.secret(true) + "@db/kv"
		},
		func() string {
			return g.name() + pick(g.Rand, ": ", "=", " = ") + "{\n  user: kv,\n  value: " + g.secret(true) + "\n}"
		},
		func() string {
			return g.name() + pick(g.Rand, ": ", "=", " => ") + "[\n  " + g.secret(true) + ",\n  " + g.secret(true) + "\n]"
		},
		func() string { return "{\n  \"" + g.name() + "\": {\n    \"a\": \"" + g.secret(true) + "\"\n  }\n}" },
		func() string {
			return "Authorization: Digest a=\"" + g.secret(true) + "\"," + pick(g.Rand, "\n ", "\r\n\t") + "b=\"" + g.secret(true) + "\""
		},
		func() string {
			return "login:\n" + pick(g.Rand, "", "  ", "\t", "- ") + g.name() + ": " + g.secret(true) + " " + g.secret(true) + "\n" + g.plain()
		},
		func() string {
			return "login:\n" + g.name() + ": " + pick(g.Rand, "|", ">-", g.secret(true)) + "\n  " + g.secret(true) + "\n    " + g.secret(true) + "\n" + g.plain()
		},
		func() string {
			by := pick(g.Rand, "", " ", "\t")
			return "login:\n" + g.name() + ":\n" + by + "- " + g.secret(true) + "\n" + by + "- a: " + g.secret(true) + "\n" + g.plain()
		},
		func() string {
			return "+ kv " + pick(g.Rand, "'--", "$'--", `"--`, "'") + g.name() + "=" + g.secret(true) + " " + g.secret(true)
		},
		func() string { return "no " + g.name() + "=" },
		func() string { return "what is --" + g.name() },
	)() + end
}

func (g *generator) value(depth int) any {
	if depth == 0 {
		return pick(g.Rand, func() any { return g.plain() }, func() any { return g.message() }, func() any { return g.IntN(100) }, func() any { return nil })()
	}
	switch g.IntN(4) {
	case 0:
		all := []any{g.value(depth - 1), g.value(0)}
		if g.IntN(2) == 0 {
			all = append(all, "--"+g.name(), g.secret(false))
		}
		return append(all, g.plain())
	case 1:
		text, err := json.Marshal(g.value(depth - 1))
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	members := map[string]any{g.plain(): g.value(depth - 1), "n": g.value(0)}
	switch g.IntN(4) { // these names themselves contain secrets
	case 0:
		members["http://kv:"+g.secret(true)+"@db/"+g.plain()] = g.value(depth - 1)
	case 1:
		members[g.plain()+" "+g.name()+"="+g.secret(true)] = g.IntN(1000)
	}
	for range g.IntN(3) {
		members[g.name()] = pick[any](g.Rand, g.secret(false), []any{g.secret(false), 1}, map[string]any{"a": g.secret(false)}, g.IntN(1000))
	}
	return members
}

// In JSON, only the secrets are redacted, so the result is still valid JSON. The same holds for JSON
// that is nested in strings.
func TestRedactor_KeepsJSONValid(t *testing.T) {
	r := config.NewRedactor("*-pin")
	secrets := 0
	for seed := range uint64(5000) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
		text, err := json.Marshal(g.value(4))
		if err != nil {
			t.Fatal(err)
		}
		secrets += g.secrets
		shown := r.Text(string(text))
		switch {
		case strings.Contains(shown, "hunter"):
			t.Errorf("seed %d: %s shows a secret: %s", seed, text, shown)
		case !json.Valid([]byte(shown)):
			t.Errorf("seed %d: the result of redacting %s is not JSON: %s", seed, text, shown)
		case r.Text(shown) != shown:
			t.Errorf("seed %d: %s changes when it is redacted again: %s", seed, shown, r.Text(shown))
		}
		for n := range g.seen {
			if want := fmt.Sprintf("seen%d", n+1); strings.Contains(string(text), want) && !strings.Contains(shown, want) {
				t.Errorf("seed %d: %s contains %s, but the result %s does not", seed, text, want, shown)
			}
		}
		if t.Failed() {
			return
		}
	}
	if secrets < 10_000 {
		t.Errorf("only %d secrets were generated", secrets)
	}
}
