package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// expand replaces the variables in a value, as in ${NAME}, or returns what is wrong with one. The
// result has the type that the text would have in the file, except that a string stays a string.
//
// A variable is expanded after the file was parsed, so its value cannot change the structure of the
// file, whatever characters it has.
func (d *decoder) expand(n *yaml.Node, v reflect.Value) (_ *yaml.Node, rule string) {
	if !strings.Contains(n.Value, "$") {
		return n, ""
	}
	text, rule := expand(n.Value, os.LookupEnv)
	if rule != "" || text == n.Value {
		return n, rule
	}
	out := &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: n.Line, Column: n.Column}
	if out.Tag = "!!str"; v.Kind() != reflect.String {
		out.Tag = typeOf(text)
	}
	return out, ""
}

// typeOf returns the tag that YAML gives to a text without quotes. The parser decides it, so the
// value of a variable means what it would mean if it were written in the file.
func typeOf(text string) string {
	var doc yaml.Node
	loader, err := yaml.NewLoader(strings.NewReader(text))
	if err != nil || loader.Load(&doc) != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.ScalarNode {
		return "!!str"
	}
	return doc.Content[0].ShortTag()
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// expand returns the text with the values of the variables in it: ${NAME}, ${NAME:-default},
// ${NAME:?message} and ${NAME:+other}, which treat an empty value as not set, and the same without
// the colon, which treat it as set. $$ is $. Any other $ stays, because scripts in arguments have
// variables of their own.
func expand(text string, lookUp func(string) (string, bool)) (_, rule string) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), ""
		case strings.HasPrefix(after, "$"):
			out.WriteString("$")
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			inside, rest, ok := cutBrace(after[1:])
			if !ok {
				return "", "has ${ without }; write $${ for the text ${"
			}
			value, rule := expandVariable(inside, lookUp)
			if rule != "" {
				return "", rule
			}
			out.WriteString(value)
			text = rest
		default:
			out.WriteString("$")
			text = after
		}
	}
}

// cutBrace splits text, which follows a ${, at the brace that closes this variable. A variable
// inside of the text has a closing brace of its own.
//
// $$ stands for the character $. So the ${ in $${ opens no variable, and no brace closes it.
func cutBrace(text string) (inside, rest string, ok bool) {
	depth := 1
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "$$"):
			i++
		case strings.HasPrefix(text[i:], "${"):
			depth++
			i++
		case text[i] == '}':
			if depth--; depth == 0 {
				return text[:i], text[i+1:], true
			}
		}
	}
	return "", "", false
}

// expandVariable returns the value of what is between ${ and }.
//
// It follows the shell, with one difference: a variable that is not set is an error and not empty,
// because an empty address or path would be found much later.
//
// So ${NAME} is the same as ${NAME?}. With a colon before the operator, a variable that is empty
// counts as one that is not set.
func expandVariable(inside string, lookUp func(string) (string, bool)) (value, rule string) {
	name := variableName.FindString(inside)
	operator := strings.TrimPrefix(inside, name)
	if name == "" {
		return "", "has ${ without the name of a variable after it; write $${ for the text ${"
	}
	value, set := lookUp(name)
	if rest, ok := strings.CutPrefix(operator, ":"); ok {
		operator, set = rest, set && value != ""
	} else if operator == "" {
		operator = "?"
	}
	word := operator[min(1, len(operator)):]
	switch {
	case strings.HasPrefix(operator, "?") && set, strings.HasPrefix(operator, "-") && set:
		return value, ""
	case strings.HasPrefix(operator, "-"), strings.HasPrefix(operator, "+") && set:
		return expand(word, lookUp)
	case strings.HasPrefix(operator, "+"):
		return "", ""
	case strings.HasPrefix(operator, "?") && word != "":
		message, rule := expand(word, lookUp)
		if rule != "" {
			return "", rule
		}
		return "", fmt.Sprintf("the variable %s is not set in the launcher's environment: %s", name, message)
	case strings.HasPrefix(operator, "?"):
		return "", fmt.Sprintf("the variable %s is not set in the launcher's environment; set it, or write ${%s:-default}, or $${%s} for the text", name, name, name)
	}
	return "", fmt.Sprintf("after ${%s come }, :-, :? or :+, not %q", name, operator)
}

// literal returns a text that expand turns into s. It doubles only a $ that would begin something,
// so most texts look in the output as they do in the file.
func literal(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteByte(s[i])
		if s[i] == '$' && i+1 < len(s) && (s[i+1] == '$' || s[i+1] == '{') {
			out.WriteByte('$')
		}
	}
	return out.String()
}

// DirOf returns the launcher's directory that a file names, for a client of the launcher. Unlike
// [Load], it needs no variables of the launcher's environment, except in state_dir. It waits for no
// other program: a file that is a pipe or a device is an error.
//
// If a variable is not set, DirOf leaves out the value that contains it. The file may then break a
// rule only because the value is missing. So DirOf ignores the errors of such a file, except for an
// error at state_dir and for one that concerns the file as a whole.
func DirOf(file string) (string, error) {
	text, err := readFile(file, openForDir)
	if err != nil {
		return "", err
	}
	c, d := &Config{}, newDecoder(file)
	d.lenient = true
	err = d.parse(text, c, nil)
	if err != nil && (!d.unset || d.wrong["state_dir"] || d.wrong[""]) {
		return "", err
	}
	return c.Dir(), nil
}
