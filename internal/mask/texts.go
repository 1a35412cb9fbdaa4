package mask

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Texts returns the texts that are masked for the values: each value, without white space around
// it, and its usual encodings. These are:
//
//   - base64, of the standard and the URL alphabet, with and without padding, also as part of a
//     longer text that was encoded as a whole, such as user:password in an HTTP header;
//   - hexadecimal digits;
//   - the escapes of URLs, as several languages write them; of JSON, also inside of a JSON string;
//     of Go strings; and of shells.
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
	for _, escaped := range escapedInURLs(value) {
		add(escaped)
		add(escapedByte.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	add(unquote(strconv.Quote(value)))
	encodeJSON(value, add)
	if !strings.Contains(value, "\n") { // the escaped value would have several lines, and output is masked line by line
		add(strings.ReplaceAll(value, "'", `'\''`))
		add(strings.ReplaceAll(value, "'", `'"'"'`))
		add(inDoubleQuotes.ReplaceAllString(value, `\$0`))
		add(notInWords.ReplaceAllString(value, `\$0`))
	}
}

// escapedInURLs returns value as the libraries of several languages escape it in a URL, for example
// with %20 for a space. No library escapes letters and digits. Of the other characters, each
// library escapes a different set, so there are several results.
func escapedInURLs(value string) []string {
	query := url.QueryEscape(value)
	all := strings.ReplaceAll(query, "+", "%20") // QueryEscape makes each space a +, and each + a %2B
	return []string{
		query, url.PathEscape(value), // the escapes of Go and of HTML forms
		all, strings.ReplaceAll(all, "%2F", "/"), // the escapes of Python, PHP and Ruby
		unescapedByComponent.Replace(all), unescapedByURI.Replace(all), // the escapes of JavaScript
	}
}

// Go escapes some characters that JavaScript's encodeURIComponent and encodeURI leave as they are.
// The replacers turn these escapes back into the characters.
var (
	unescapedByComponent = strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")
	unescapedByURI       = strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*",
		"%23", "#", "%24", "$", "%26", "&", "%2B", "+", "%2C", ",", "%2F", "/", "%3A", ":", "%3B", ";", "%3D", "=", "%3F", "?", "%40", "@")
)

// encodeJSON calls add with the value as a JSON string, without its quotes. It adds the forms that
// libraries write by default: with and without escapes for HTML, in ASCII as by Python, and with
// escaped slashes as by PHP. Each of them is also encoded as a part of JSON in a JSON string.
func encodeJSON(value string, add func(string)) {
	text, html := quoteJSON(value, false), quoteJSON(value, true)
	ascii := inASCII(text)
	for _, t := range []string{text, html, ascii, strings.ReplaceAll(text, "/", `\/`), strings.ReplaceAll(ascii, "/", `\/`)} {
		add(t)
		add(quoteJSON(t, false))
	}
}

func quoteJSON(value string, escapeHTML bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	e.Encode(value) // encoding a string cannot fail
	return unquote(strings.TrimSpace(b.String()))
}

// inASCII returns text, which is a JSON string, with the escapes of JSON for all characters outside
// of ASCII.
func inASCII(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case utf16.RuneLen(r) == 1:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// The characters that shells escape with a backslash: inside of double quotes, and outside of
// quotes.
var (
	inDoubleQuotes = regexp.MustCompile("[\"$`\\\\!]")
	notInWords     = regexp.MustCompile(`[^\w@%+=:,./-]`)
)

// escapedByte matches an escaped byte in a URL. Programs write its digits in upper or lower case.
var escapedByte = regexp.MustCompile(`%[0-9A-F]{2}`)

func unquote(s string) string { return s[1 : len(s)-1] }

// encodeBase64 calls add with each form that a value can have inside a longer text in base64, in
// which the number of bytes before the value is shift modulo 3. Each character stands for 6 bits,
// so the first and the last one may also depend on the bytes next to the value. These two are left
// out, except for the last one if the value may be the end of the text, with and without padding.
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
