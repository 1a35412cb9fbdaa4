package config

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/swansong-go/swansong/internal/mask"
)

// Masked returns a copy for display, in which *** takes the place of every secret: the values of
// variables and flags with a secret name, also short ones, passwords in URLs, and Secret.Values. It
// does not read Secret.Files.
func (c *Config) Masked() *Config {
	d, out := c.displayed(), *c
	out.Groups = slices.Clone(c.Groups)
	for k := range out.Groups {
		g := &out.Groups[k]
		g.Command, g.Env, g.FromFiles = d.args(g.Command), d.environment(g.Env), maps.Clone(g.FromFiles)
		for name, value := range g.FromFiles {
			g.FromFiles[name] = d.env(name, value)
		}
		g.Roll.Check.Command = d.args(g.Roll.Check.Command)
		for _, p := range []*Probe{&g.StartupProbe, &g.ReadinessProbe, &g.LivenessProbe} {
			p.Exec.Command = d.args(p.Exec.Command)
			p.HTTPGet.Path = d.masker.Mask(p.HTTPGet.Path)
			p.HTTPGet.Headers = slices.Clone(p.HTTPGet.Headers)
			for n, h := range p.HTTPGet.Headers {
				p.HTTPGet.Headers[n].Value = d.env(h.Name, h.Value)
			}
		}
		g.PreStop = slices.Clone(g.PreStop)
		for n := range g.PreStop {
			g.PreStop[n].Command = d.args(g.PreStop[n].Command)
		}
	}
	maskTexts(reflect.ValueOf(&out).Elem(), d.masker)
	return &out
}

// maskTexts leaves the values of these keys as they are. The name of a group stays, because other
// groups refer to it in depends_on. The values of env have been masked before. The names of
// variables and limits stay, because with *** in them they would be other names, and two could
// become the same.
var unmasked = []string{"name", dependsOn, "env", "rlimits"}

// maskTexts masks the texts in v, except for those of the keys in unmasked, and copies the slices
// and maps that it changes.
//
// A secret can be in any text, for instance a password in a path that ${NAME} has put there.
func maskTexts(v reflect.Value, m *mask.Masker) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(m.Mask(v.String()))
	case reflect.Struct:
		for k := range v.NumField() {
			if !slices.Contains(unmasked, v.Type().Field(k).Tag.Get("yaml")) {
				maskTexts(v.Field(k), m)
			}
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		texts := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(texts, v)
		for k := range texts.Len() {
			maskTexts(texts.Index(k), m)
		}
		v.Set(texts)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		texts := reflect.MakeMap(v.Type())
		for _, name := range v.MapKeys() {
			text := reflect.New(v.Type().Elem()).Elem()
			text.Set(v.MapIndex(name))
			maskTexts(text, m)
			texts.SetMapIndex(name, text)
		}
		v.Set(texts)
	}
}

// A display shows values without secrets.
type display struct {
	names  mask.Names
	masker *mask.Masker
}

// displayed collects the secrets of the whole configuration first, because a value that is secret
// in one group must be hidden in the others, too.
func (c *Config) displayed() display {
	names := mask.NewNames(c.Secret.Names)
	// A value in the file can come from the environment, by ${NAME}.
	secrets := slices.Concat(c.Secret.Values, names.Env(os.Environ()))
	for k := range c.Groups {
		g := c.Groups[k].launcher()
		secrets = slices.Concat(secrets, names.Env(g.Env), names.Args(g.Command), names.Args(g.Roll.Check.Command))
		for _, p := range []Probe{g.StartupProbe, g.ReadinessProbe, g.LivenessProbe} {
			args, headers := p.Secrets()
			secrets = slices.Concat(secrets, names.Args(args), names.Env(headers))
		}
		for _, h := range g.PreStop {
			secrets = append(secrets, names.Args(h.Command)...)
		}
	}
	return display{names, mask.New(secrets)}
}

// env returns the value of a variable, or the mask if its name or its value is secret.
func (d display) env(name, value string) string { return d.names.HideEnv(name, value, d.masker) }
func (d display) environment(env []string) []string {
	env = slices.Clone(env)
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		env[i] = name + "=" + d.env(name, value)
	}
	return env
}

// args returns the arguments with secrets masked, such as the value after --token.
func (d display) args(args []string) []string { return d.names.HideArgs(args, d.masker) }
