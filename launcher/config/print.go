package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/swansong-go/swansong/launcher"
)

// Print writes the configuration as YAML, with all defaults and without secrets. Empty values are
// left out.
func (c *Config) Print(w io.Writer) error {
	text, err := yaml.Dump(encode(&setting{keys: configKeys}, reflect.ValueOf(*c.Masked())), yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// PrintJSON is like [Config.Print], and writes JSON.
func (c *Config) PrintJSON(w io.Writer) error {
	var tree any
	if err := encode(&setting{keys: configKeys}, reflect.ValueOf(*c.Masked())).Load(&tree); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(tree)
}

// encode returns the node that decoder.value reads as v, the field of a key.
//
// It writes what the decoder reads, so that the printed file means the same as the original: a $ is
// doubled where it would begin a variable, and a string keeps its type.
//
// A list of single values is written in one line.
func encode(k *setting, v reflect.Value) *yaml.Node {
	switch v = k.fileForm(v); v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, in := range k.keys {
			if f := in.fieldOf(v); in.field == nil || !empty(in.fileForm(f)) {
				n.Content = append(n.Content, text(in.name), encodeField(v, in, f))
			}
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, encode(&setting{keys: elements[v.Type().Elem()]}, v.Index(i)))
			if n.Content[i].Kind == yaml.ScalarNode {
				n.Style = yaml.FlowStyle
			}
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range sortedKeys(v) {
			n.Content = append(n.Content, text(name), encode(&setting{}, v.MapIndex(reflect.ValueOf(name))))
		}
		return n
	case reflect.String:
		if _, err := strconv.Atoi(v.String()); err == nil && v.Type() == portType {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: v.String()}
		}
		return text(literal(v.String()))
	case reflect.Float64:
		number := &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(v.Float(), 'g', -1, 64)}
		number.Tag = typeOf(number.Value)
		return number
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	}
	return text(show(v))
}

// encodeField returns the node of a field of v. The value of depends_on is a mapping if one of its
// groups has a condition, and a list otherwise.
func encodeField(v reflect.Value, k *setting, field reflect.Value) *yaml.Node {
	g, ok := v.Interface().(Group)
	if !ok || k.name != dependsOn || len(g.Conditions) == 0 {
		return encode(k, field)
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range g.DependsOn {
		n.Content = append(n.Content, text(literal(name)), text(string(cmp.Or(g.Conditions[name], launcher.IsHealthy))))
	}
	return n
}

// sortedKeys returns the keys of a map, which are strings, sorted.
func sortedKeys(m reflect.Value) (names []string) {
	for _, k := range m.MapKeys() {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return names
}

// text returns the node of a string, with its tag: so a string such as "true" is printed in quotes.
func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// empty reports whether leaving out v means the same as writing it. A duration or a whole number of
// 0 is not empty: it means 0, and the default may be another value.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Invalid: // a nil pointer: a program has left the default to package launcher
		return true
	case reflect.String, reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Int64:
		// A size of 0 is left out, because it means the default, or is not valid anyway.
		return v.Type() == bytesType && v.IsZero()
	case reflect.Struct, reflect.Bool, reflect.Float64:
		return v.IsZero()
	}
	return false
}

// show returns the text of a value.
func show(v reflect.Value) string {
	switch v := v.Interface().(type) {
	case time.Duration:
		return v.String()
	case Bytes:
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}
