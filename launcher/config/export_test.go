package config

import (
	"cmp"
	"reflect"
	"strings"
)

// Keys returns all keys of a file, with their values in the configuration and in its first group.
func Keys(c *Config) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	var walk func(at string, keys []*setting, v reflect.Value)
	walk = func(at string, keys []*setting, v reflect.Value) {
		for _, k := range keys {
			name, in := join(at, k.name), k.fileForm(k.fieldOf(v))
			switch {
			case name == "process_groups":
			case k.keys != nil:
				walk(name, k.keys, in)
			case in.Kind() == reflect.Slice && in.Type().Elem().Kind() == reflect.Struct && in.Len() > 0:
				walk(name, elements[in.Type().Elem()], in.Index(0))
			default:
				all[name] = in
			}
		}
	}
	walk("", configKeys, reflect.ValueOf(*c))
	walk("", groupKeys, reflect.ValueOf(c.Groups[0]))
	return all
}

// EffectOf returns the effect of a change of a field of launcher.GroupConfig, and of the fields in
// it.
func EffectOf(field string) (effect Effect, ok bool) {
	for f, key := range keys {
		if outer, _, _ := strings.Cut(f, "."); outer == field {
			key, _, _ = strings.Cut(key, ".")
			return cmp.Or(effects[key], AtOnce), true
		}
	}
	return "", false
}

// WithoutKey makes the package forget which key of a file sets the field, until restore is called.
func WithoutKey(field string) (restore func()) {
	key := keys[field]
	delete(keys, field)
	return func() { keys[field] = key }
}
