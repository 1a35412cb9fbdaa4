package config

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
)

// Print writes the configuration as YAML, with all defaults and without secrets. Empty values are
// left out.
func (c *Config) Print(w io.Writer) error {
	text, err := yaml.Dump(encode(reflect.ValueOf(*c.Masked())), yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// PrintJSON is like [Config.Print], and writes JSON.
func (c *Config) PrintJSON(w io.Writer) error {
	var tree any
	if err := encode(reflect.ValueOf(*c.Masked())).Load(&tree); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(tree)
}

// encode returns the node that decoder.value reads as v.
func encode(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for k := range v.NumField() {
			if f := v.Field(k); !empty(f) {
				n.Content = append(n.Content, text(v.Type().Field(k).Tag.Get("yaml")), encode(f))
			}
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for k := range v.Len() {
			n.Content = append(n.Content, encode(v.Index(k)))
			if n.Content[k].Kind == yaml.ScalarNode {
				n.Style = yaml.FlowStyle
			}
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		m := v.Interface().(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			n.Content = append(n.Content, text(name), text(m[name]))
		}
		return n
	case reflect.String:
		if _, err := strconv.Atoi(v.String()); err == nil && v.Type() == portType {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: v.String()}
		}
		return text(v.String())
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	}
	return text(show(v))
}

func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
}

// empty reports whether leaving out v means the same as writing it.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
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
