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
// Output is read line by line. So if a value has several lines, each line is masked, except for the
// first and last lines of PEM files, such as BEGIN PRIVATE KEY.
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
	if !strings.Contains(value, "\n") { // the escaped value would have several lines, and output is masked line by line
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

// escapedByte is an escaped byte in a URL. Programs write its digits in upper or lower case.
var escapedByte = regexp.MustCompile(`%[0-9A-F]{2}`)

func unquote(s string) string { return s[1 : len(s)-1] }

// encodeBase64 calls add with the base64 encoding of a value inside a longer text, in which the
// number of bytes before the value is shift modulo 3. Each character stands for 6 bits. Characters
// that also contain bits of the bytes before or after the value are left out, except at the end of
// the encoded text.
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
