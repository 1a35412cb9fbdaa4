package mask_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMasker_ChangesNothingButSecretValues(t *testing.T) {
	m := mask.New([]string{"hunter2", "swordfish", "short", "  1234567\n"})
	for text, want := range map[string]string{
		"":                                      "",
		"login with hunter2":                    "login with ***",
		"hunter2":                               "***",
		"hunter2hunter2 swordfish":              "****** ***",
		"hunter":                                "hunter",
		"hunter hunter2x":                       "hunter ***x",
		"Hunter2 HUNTER2":                       "Hunter2 HUNTER2",
		"it is short":                           "it is short", // this value is shorter than MinLength, so it is not masked
		"1234567":                               "***",
		"max_tokens=4096":                       "max_tokens=4096",
		"could not parse token: unexpected EOF": "could not parse token: unexpected EOF",
		`{"password":"x","pin":123456}`:         `{"password":"x","pin":123456}`,
		"https://user:pass@host/":               "https://user:pass@host/",
		"\xffhunter2\xff":                       "\xff***\xff",
	} {
		testkit.Equal(t, text, m.Mask(text), want)
	}
	var none *mask.Masker
	testkit.Equal(t, "a nil Masker", none.Mask("hunter2"), "hunter2")
	if mask.New([]string{"", "short"}) != nil {
		t.Error("a Masker without values is not nil")
	}
}

// odd contains characters that encodings must escape. Each encoding escapes some of them.
const odd = `a'b"c d/e+f$g\h&i<j>é`

func TestMasker_MasksEncodedValues(t *testing.T) {
	values := []string{"hunter2", "hunter22", "hunter222", odd, "???>>>~~~", "key: \x00\x01\xfe\xff~~~"}
	for _, v := range values {
		m := mask.New([]string{v})
		quoted, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		hidden := map[string]string{
			"raw":             v,
			"standard base64": base64.StdEncoding.EncodeToString([]byte(v)),
			"raw base64":      base64.RawStdEncoding.EncodeToString([]byte(v)),
			"URL base64":      base64.URLEncoding.EncodeToString([]byte(v)),
			"raw URL base64":  base64.RawURLEncoding.EncodeToString([]byte(v)),
			"hex":             hex.EncodeToString([]byte(v)),
			"upper case hex":  fmt.Sprintf("%X", v),
			"URL query":       url.QueryEscape(v),
			"URL path":        url.PathEscape(v),
			"URL, lower case": regexp.MustCompile("%..").ReplaceAllStringFunc(url.QueryEscape(v), strings.ToLower),
			"JSON":            strings.Trim(string(quoted), `"`),
			"Go":              strings.Trim(strconv.Quote(v), `"`),
			"single quotes":   strings.ReplaceAll(v, `'`, `'\''`),
			"Python's quotes": strings.ReplaceAll(v, `'`, `'"'"'`),
			"double quotes":   strings.NewReplacer(`"`, `\"`, `$`, `\$`, `\`, `\\`).Replace(v),
		}
		for name, text := range hidden {
			testkit.Equal(t, fmt.Sprintf("%s of %q", name, v), m.Mask("<"+text+">"), "<***>")
		}
	}
	backslashes := `a\'b\"c\ d/e+f\$g\\h\&i\<j\>\é`
	testkit.Equal(t, "what printf %q writes", mask.New([]string{odd}).Mask(backslashes), "***")
}

// The standard libraries of other languages escape other characters than Go's. The Masker finds
// their encodings of a value, too.
func TestMasker_MasksValuesEncodedInOtherLanguages(t *testing.T) {
	const v = `p/w "ü😀" & (x+y)!`
	m := mask.New([]string{v})
	for name, text := range map[string]string{
		"Python quote, safe=''":      `p%2Fw%20%22%C3%BC%F0%9F%98%80%22%20%26%20%28x%2By%29%21`,
		"Python quote":               `p/w%20%22%C3%BC%F0%9F%98%80%22%20%26%20%28x%2By%29%21`,
		"Python quote_plus":          `p%2Fw+%22%C3%BC%F0%9F%98%80%22+%26+%28x%2By%29%21`,
		".NET, lower case":           `p%2fw%20%22%c3%bc%f0%9f%98%80%22%20%26%20%28x%2by%29%21`,
		"encodeURIComponent":         `p%2Fw%20%22%C3%BC%F0%9F%98%80%22%20%26%20(x%2By)!`,
		"encodeURI":                  `p/w%20%22%C3%BC%F0%9F%98%80%22%20&%20(x+y)!`,
		"Python json":                `p/w \"\u00fc\ud83d\ude00\" & (x+y)!`,
		"Python json in json":        `p/w \\\"\\u00fc\\ud83d\\ude00\\\" & (x+y)!`,
		"PHP json_encode":            `p\/w \"\u00fc\ud83d\ude00\" & (x+y)!`,
		"PHP, unescaped Unicode":     `p\/w \"ü😀\" & (x+y)!`,
		"JSON.stringify":             `p/w \"ü😀\" & (x+y)!`,
		"JSON.stringify of the same": `p/w \\\"ü😀\\\" & (x+y)!`,
	} {
		testkit.Equal(t, name, m.Mask("<"+text+">"), "<***>")
	}
}

// If a base64 text contains the value between other bytes, the characters that depend on the value
// alone are masked. Those at its ends may depend on other bytes as well. They stay, and do not
// reveal the value.
func TestMasker_FindsValueInsideBase64(t *testing.T) {
	const v = "correct horse"
	m := mask.New([]string{v})
	for before := range 7 {
		for after := range 7 {
			text := base64.StdEncoding.EncodeToString([]byte("user:xy"[:before] + v + "@host.x"[:after]))
			got := m.Mask(text)
			head, tail, found := strings.Cut(got, mask.Mark)
			if !found || len(head) > before*4/3+2 || len(tail) > after*4/3+5 {
				t.Errorf("%d bytes before, %d behind: %q is masked as %q", before, after, text, got)
			}
		}
	}
}

func TestMasker_MasksUnionOfOverlappingValues(t *testing.T) {
	m := mask.New([]string{"alphabet", "betamax", "maximum", "ababab"})
	testkit.Equal(t, "a chain", m.Mask("an alphabetamaximum x"), "an *** x")
	testkit.Equal(t, "one value, overlapping itself", m.Mask("abababababc"), "***c")
	m = mask.New([]string{"hunter2", "hunter2-of-all", "is hunter2"})
	testkit.Equal(t, "a value inside of another", m.Mask("it is hunter2-of-all, hunter2-of"), "it ***, ***-of")
}

func TestMasker_MasksEachLongLineOfMultilineSecret(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\r\nhkiG9w0BAQEFAASC\nx\n-----END PRIVATE KEY-----\n"
	m := mask.New([]string{key})
	want := "-----BEGIN PRIVATE KEY-----\n***\n***\nx\n-----END PRIVATE KEY-----\n"
	testkit.Equal(t, "lines", m.Mask(strings.ReplaceAll(key, "\r", "")), want)
	text, err := json.Marshal(map[string]string{"key": strings.TrimSpace(key)})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "JSON", m.Mask(string(text)), `{"key":"***"}`)
	testkit.Equal(t, "base64", strings.HasPrefix(m.Mask(base64.StdEncoding.EncodeToString([]byte(key))), "***"), true)
}

// split masks a line in pieces, as a reader of a stream does: in each call it passes to Split only
// as many bytes as Split needs for one piece: limit plus Lookahead.
func split(m *mask.Masker, line string, limit int) (pieces []string) {
	seen, covered := "", 0
	for {
		n := min(max(0, limit+m.Lookahead()-len(seen)), len(line))
		seen, line = seen+line[:n], line[n:]
		inSecret := covered > 0
		var piece string
		piece, seen, covered = m.Split(seen, limit, covered)
		if piece != "" || !inSecret {
			pieces = append(pieces, piece)
		}
		if seen+line == "" {
			return pieces
		}
	}
}

func TestMasker_SplitsLongLineOnlyOutsideSecrets(t *testing.T) {
	m := mask.New([]string{"hunter2", "2betamax", "a value of some length"})
	for _, test := range []struct {
		line  string
		limit int
		want  []string
	}{
		{"", 10, []string{""}},
		{"0123456789", 10, []string{"0123456789"}},
		{"0123456789x", 10, []string{"0123456789", "x"}},
		{"0123456789hunter2", 10, []string{"0123456789", "***"}},
		{"012345678hunter2x", 10, []string{"012345678", "***x"}},
		{"012hunter2x", 10, []string{"012***", "x"}},
		{"012hunter2xyz", 10, []string{"012***", "xyz"}},
		{"01234hunter2betamaxyz", 10, []string{"01234", "***", "yz"}},
		{"a value of some length", 10, []string{"***"}},
		{"a value of some lengthwise", 10, []string{"***", "wise"}},
		{"0123a value of some lengthwise", 10, []string{"0123", "***", "wise"}},
	} {
		testkit.Equal(t, test.line, split(m, test.line, test.limit), test.want)
	}
	var none *mask.Masker
	testkit.Equal(t, "a nil Masker", split(none, "0123456789x", 10), []string{"0123456789", "x"})
}

// However a line is split, the joined pieces equal the masked line, except for the places of the
// marks, and no piece is longer than the limit.
func FuzzMasker_SplitMasksSameTextAsMask(f *testing.F) {
	f.Add("ababab", "hunter2", "xabababababhunter2y", 6)
	f.Add("aaaaaaaaaaaa", "aaaaaab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaabaaaaaa", 5)
	f.Add("abcabcabc", "cabcab", "abcabcabcabcabcabcabcabcabcabcab", 4)
	f.Fuzz(func(t *testing.T, a, b, line string, limit int) {
		if limit = max(3, limit%64); limit > 64 {
			return
		}
		m := mask.New([]string{a, b})
		if strings.Contains(line, "*") || strings.Contains(a+b, "*") {
			return
		}
		pieces := split(m, line, limit)
		for _, p := range pieces {
			if len(p) > limit {
				t.Errorf("%q has %d bytes, limit %d", p, len(p), limit)
			}
		}
		if diff := cmp.Diff(m.Mask(line), strings.Join(pieces, "")); diff != "" {
			t.Errorf("%q in pieces of %d (-whole +pieces):\n%s", line, limit, diff)
		}
	})
}

// Lines without a secret are not copied.
func TestMasker_DoesNotAllocateForLinesWithoutSecrets(t *testing.T) {
	m := mask.New([]string{"hunter2", "swordfish"})
	line := strings.Repeat("request served in 12 ms ", 5)
	if n := testing.AllocsPerRun(100, func() { m.Mask(line) }); n > 0 {
		t.Errorf("%v allocations a line", n)
	}
}
