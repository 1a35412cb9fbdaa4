package mask

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Texts returns what is masked for the values: each value, without white space around it, and its
// usual encodings. These are:
//
//   - base64, of the standard and the URL alphabet, with and without padding, also as part of a
//     longer text that was encoded as a whole, such as user:password in an HTTP header;
//   - hexadecimal digits;
//   - the escapes of URLs, of JSON and Go strings, and of shells.
//
// Output is read line by line, so of a value with several lines, each line is masked, except for
// those of PEM files that say what follows.
func Texts(values []string) []string {
	var all []string
	seen := map[string]bool{}
	add := func(text string) {
		if len(text) >= MinLength && !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	for _, value := range values {
		value = strings.TrimSpace(value)
		if len(value) < MinLength {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
				add(line)
			}
		}
		encode(value, add)
	}
	return all
}

// encode calls add with each encoding of a value.
func encode(value string, add func(string)) {
	for shift := range 3 {
		encodeBase64(value, shift, add)
	}
	digits := hex.EncodeToString([]byte(value))
	add(digits)
	add(strings.ToUpper(digits))
	for _, escaped := range []string{url.QueryEscape(value), url.PathEscape(value)} {
		add(escaped)
		add(escapedByte.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	add(unquote(strconv.Quote(value)))
	for _, html := range []bool{false, true} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		e.Encode(value) // encoding a string cannot fail
		add(unquote(strings.TrimSpace(b.String())))
	}
	if !strings.Contains(value, "\n") { // what shells write would have several lines
		add(strings.ReplaceAll(value, "'", `'\''`))
		add(strings.ReplaceAll(value, "'", `'"'"'`))
		add(inDoubleQuotes.ReplaceAllString(value, `\$0`))
		add(notInWords.ReplaceAllString(value, `\$0`))
	}
}

// The characters that shells escape.
var (
	inDoubleQuotes = regexp.MustCompile("[\"$`\\\\!]")
	notInWords     = regexp.MustCompile(`[^\w@%+=:,./-]`)
)

// escapedByte is a byte as URLs have it, whose digits can be lower case letters.
var escapedByte = regexp.MustCompile(`%[0-9A-F]{2}`)

func unquote(s string) string { return s[1 : len(s)-1] }

// encodeBase64 calls add with what base64 makes of a value that is preceded by shift bytes, modulo
// 3. Each character stands for 6 bits. Those that have bits of the bytes before or behind the value
// are left out, unless the encoded text ends with the value.
func encodeBase64(value string, shift int, add func(string)) {
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		padded := alphabet.EncodeToString([]byte("\x00\x00\x00"[:shift] + value))
		padded = padded[[]int{0, 2, 3}[shift]:]
		raw := strings.TrimRight(padded, "=")
		add(padded)
		add(raw)
		if raw != padded {
			add(raw[:len(raw)-1])
		}
	}
}
