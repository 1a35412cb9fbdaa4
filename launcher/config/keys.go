package config

import (
	"reflect"
	"strings"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A setting is a key of the file, with the field that has its value. The yaml tags of the fields
// say what the keys are. A tag with a dot, as in liveness.interval, is for a key in a mapping,
// liveness, that has no field of its own: the keys in it belong to fields of the surrounding
// struct. If a struct has the tag ",inline", its fields are keys of the surrounding mapping.
type setting struct {
	name  string
	field []int      // index of the field in the struct; empty for a mapping that has no field of its own
	form  string     // how the file writes the value, if the type of the field does not say it; see forms
	keys  []*setting // the settings in the mapping; nil if the setting is a single value
}

// fieldOf returns the field of the struct v that has the value of the key. For a mapping that has
// no field of its own it returns v itself.
func (k *setting) fieldOf(v reflect.Value) reflect.Value { return v.FieldByIndex(k.field) }

var (
	configKeys = keysOf(reflect.TypeFor[Config]())
	groupKeys  = keysOf(reflect.TypeFor[Group]())
	elements   = map[reflect.Type][]*setting{} // keys of mappings that are elements of a list
)

func init() {
	elements[reflect.TypeFor[Group]()] = groupKeys
	for _, t := range []reflect.Type{reflect.TypeFor[launcher.Hook](), reflect.TypeFor[launcher.Listen](), reflect.TypeFor[spec.HTTPHeader]()} {
		elements[t] = keysOf(t)
	}
	addFields("", "", reflect.TypeFor[launcher.GroupConfig](), keysOf(reflect.TypeFor[launcher.GroupConfig]()), keys)
	addFields("", "", reflect.TypeFor[Config](), configKeys, topKeys)
}

// keysOf returns the keys of a mapping that is read into a struct of type t.
//
// The file and the structs of package launcher have one list of keys, the tags, so decoding,
// printing, comparing and the positions of errors cannot disagree about a key.
func keysOf(t reflect.Type) (keys []*setting) {
	var add func(t reflect.Type, index []int)
	add = func(t reflect.Type, index []int) {
		for i := range t.NumField() {
			// Cut the capacity of index, so that append copies it: the indexes of two fields must
			// not share an array.
			f, at := t.Field(i), append(index[:len(index):len(index)], i)
			tag, ok := f.Tag.Lookup("yaml")
			if tag == ",inline" {
				add(f.Type, at)
				continue
			}
			to := &keys
			if before, after, found := strings.Cut(tag, "."); found {
				to, tag = &mapping(&keys, before).keys, after
			}
			k := &setting{name: tag, field: at, form: f.Tag.Get("form")}
			switch {
			case !ok:
				continue
			case f.Type.Kind() == reflect.Struct:
				k.keys = keysOf(f.Type)
			case k.form == "command,args":
				k.name, k.form = "command", "command"
				*to = append(*to, k, &setting{name: "args", field: at, form: "args"})
				continue
			}
			*to = append(*to, k)
		}
	}
	add(t, nil)
	return keys
}

// mapping returns the key with this name, and adds it if it is missing. Its value is a mapping that
// has no field of its own.
func mapping(keys *[]*setting, name string) *setting {
	for _, k := range *keys {
		if k.name == name {
			return k
		}
	}
	k := &setting{name: name}
	*keys = append(*keys, k)
	return k
}

// Keys of the fields of launcher.GroupConfig and launcher.Config, for errors of package launcher.
var (
	keys    = map[string]string{}
	topKeys = map[string]string{"Dir": "state_dir", "Secrets.Files": "secret.files"}
)

// addFields adds the keys of the fields of a struct. Env is left out, because its elements are
// checked by their names.
//
// Package launcher knows only fields, and its errors are to name what the user has written. So the
// map leads from each field, such as Shutdown.Max, to its key in the file.
func addFields(field, at string, t reflect.Type, all []*setting, to map[string]string) {
	for _, k := range all {
		path, t := field, t
		for _, i := range k.field {
			path, t = strings.TrimPrefix(path+"."+t.Field(i).Name, "."), t.Field(i).Type
		}
		name := join(at, k.name)
		if k.form != "env" && k.form != "args" && path != field {
			to[path] = name
		}
		inner := k.keys
		if t.Kind() == reflect.Slice {
			t, inner = t.Elem(), elements[t.Elem()]
		}
		if t != reflect.TypeFor[Group]() {
			addFields(path, name, t, inner, to)
		}
	}
}

// keyOf returns the key of a field of the group that has the key groupKey. If groupKey is empty, it
// is the key of a field outside of groups. An index in the field, as in Listen[0].Address, is in
// the key, too: listeners[0].address.
func keyOf(groupKey string, f spec.Field) (key string, ok bool) {
	field := string(f)
	number := ""
	if before, after, found := strings.Cut(field, "["); found {
		digits, rest, _ := strings.Cut(after, "]")
		field, number = before+rest, "["+digits+"]"
	}
	if groupKey == "" {
		key, ok = topKeys[field]
	}
	if !ok {
		key, ok = keys[field]
	}
	list, rest, nested := strings.Cut(key, ".")
	if number != "" {
		key = list + number
		if nested {
			key += "." + rest
		}
	}
	return join(groupKey, key), ok
}

// lastName returns the name of a field in the text of an error about another field: the last part
// of its key, such as max_duration. The last part suffices, because the error begins with the full
// key of the other field, and both keys are usually in one mapping.
func lastName(f spec.Field) string {
	key, _ := keyOf("", f)
	return key[strings.LastIndexByte(key, '.')+1:]
}
