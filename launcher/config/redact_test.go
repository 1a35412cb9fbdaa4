package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/config"
)

func TestRedactor(t *testing.T) {
	r := config.NewRedactor("*-pin")
	t.Run("environment", func(t *testing.T) {
		got := r.Environ([]string{
			"LOG_LEVEL=debug",
			"DB_PASSWORD=hunter2",
			"db_password=hunter2",
			"GITHUB_TOKEN=hunter2",
			"AWS_SECRET_ACCESS_KEY=hunter2",
			"CARD_PIN=hunter2",
			"EMPTY_TOKEN=",
			"DATABASE_URL=postgres://kv:hunter2@db/kv?sslmode=off&password=hunter2",
			"REDIS=redis://:hun/ter:2@cache:6379",
			"DSN=host=db password='hun ter2' user=kv",
			"KEYBOARD=qwerty",
			"PWD=/srv",
			"MONKEY=ape",
		})
		want := []string{
			"LOG_LEVEL=debug",
			"DB_PASSWORD=[redacted]",
			"db_password=[redacted]",
			"GITHUB_TOKEN=[redacted]",
			"AWS_SECRET_ACCESS_KEY=[redacted]",
			"CARD_PIN=[redacted]",
			"EMPTY_TOKEN=",
			"DATABASE_URL=postgres://kv:[redacted]@db/kv?sslmode=off&password=[redacted]",
			"REDIS=redis://:[redacted]@cache:6379",
			"DSN=host=db password=[redacted] user=kv",
			"KEYBOARD=qwerty",
			"PWD=/srv",
			"MONKEY=ape",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("command lines in a text", func(t *testing.T) {
		for text, want := range map[string]string{
			"exec web --verbose --token hunter2 -n 1":       "exec web --verbose --token [redacted] -n 1",
			`run ["web", "--api-key", "hunter2", "-v"]`:     `run ["web", "--api-key", [redacted], "-v"]`,
			"-password 'hunter 2' --card-pin -1234":         "-password [redacted] --card-pin [redacted]",
			"--- PASS: TestToken (0.1s), and a-token is it": "--- PASS: TestToken (0.1s), and a-token is it",
			"--log-level debug --token":                     "--log-level debug --token",
		} {
			if diff := cmp.Diff(want, r.Text(text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
	t.Run("arguments", func(t *testing.T) {
		args := []string{"--data", "/srv", "--api-token=hunter2", "-password", "-hunter2", "--card-pin", "1234", "--token=", "PASSWORD=hunter2",
			"--url=https://kv:hunter2@example.com/", "-H", "Authorization: Bearer hunter2", "--verbose", "--secret"}
		given := append([]string(nil), args...)
		want := []string{"--data", "/srv", "--api-token=[redacted]", "-password", "[redacted]", "--card-pin", "[redacted]", "--token=", "PASSWORD=[redacted]",
			"--url=https://kv:[redacted]@example.com/", "-H", "Authorization: [redacted]", "--verbose", "--secret"}
		if diff := cmp.Diff(want, r.Args(args)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(given, args); diff != "" {
			t.Errorf("the program gets other arguments (-want +got):\n%s", diff)
		}
	})
}
