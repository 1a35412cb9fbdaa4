package config_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// The reference page has a row for each key, with its default, and for no other key.
func TestReferencePage_DocumentsEveryKey(t *testing.T) {
	c, err := config.Parse("", []byte("process_groups: [{name: kv, listeners: [{name: l, address: ':0'}], pre_stop: [{command: x}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*config.Probe{&c.Groups[0].StartupProbe, &c.Groups[0].ReadinessProbe, &c.Groups[0].LivenessProbe} {
		p.HTTPGet.Headers = make([]spec.HTTPHeader, 1)
	}
	want := map[string]string{}
	for key, v := range config.Keys(c) {
		want[key] = shown(v)
	}
	for key := range want { // the page has one table with the keys of all probes
		if kind, rest, ok := strings.Cut(key, "Probe."); ok {
			delete(want, key)
			want[kind+"Probe"] = "–"
			want["…"+rest] = "–"
		}
	}
	for key, what := range map[string]string{"…httpGet.path": "`/`", "…httpGet.host": "`127.0.0.1`", "…tcpSocket.host": "`127.0.0.1`", "…httpGet.scheme": "`HTTP`",
		"…initialDelaySeconds": "`0s`", "…periodSeconds": "`10s`", "…timeoutSeconds": "`1s`", "…successThreshold": "`1`", "…failureThreshold": "`3`"} {
		want[key] = what
	}
	for key, what := range map[string]string{"name": "–", "command": "`name`", "min_healthy_instances": "see below", "total_deadline": "see below",
		"listeners.name": "–", "listeners.address": "–", "pre_stop.command": "–"} {
		want[key] = what
	}
	page, err := os.ReadFile("../../docs/reference/launcher.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page2, _ := strings.Cut(string(page), "## Every key")
	page2, _, _ = strings.Cut(page2, "\n## ")
	got := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(…?[A-Za-z_.]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(page2, -1) {
		got[m[1]] = strings.TrimSpace(m[2])
	}
	testkit.Equal(t, "rows of the page", got, want)
}

// shown returns the text that stands for a default value on the reference page.
func shown(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Map, v.Kind() == reflect.Slice && v.Len() == 0, v.Kind() == reflect.String && v.Len() == 0:
		return "–"
	case v.Kind() == reflect.Slice:
		return fmt.Sprintf("`%v`", v.Interface())
	}
	s := fmt.Sprint(v.Interface())
	s = strings.TrimSuffix(s, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(s, "m0s")]
	return "`" + s + "`"
}
