package mask_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/internal/testkit"
)

func TestNames_MatchUsualNamesOfSecretsAndUsersPatterns(t *testing.T) {
	n := mask.NewNames([]string{"*-pin", "[xy]_?", "TLS_KEY_FILE"})
	for _, name := range []string{"DB_PASSWORD", "db_password", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "--api-key", "-password", "SENTRY_DSN",
		"CARD_PIN", "card-pin", "X_A", "TLS_KEY_FILE"} {
		if !n.Match(name) {
			t.Errorf("the value of %s is not secret", name)
		}
	}
	for _, name := range []string{"LOG_LEVEL", "KEYBOARD", "PWD", "MONKEY", "PIN", "DB_PASSWORD_FILE", "--token-path", "SECRETS_DIR", ""} {
		if n.Match(name) {
			t.Errorf("the value of %s is secret", name)
		}
	}
}

func TestNames_FindSecretsInEnvironment(t *testing.T) {
	got := mask.NewNames(nil).Env([]string{"LOG_LEVEL=debug", "DB_PASSWORD=a=b", "EMPTY", "URL=postgres://kv:hun/t%20er2@db/kv?x=a@b",
		"REGISTRY=http://host:5000/kv@sha256", "REDIS=redis://:swordfish@cache:6379, redis://u:other@cache"})
	testkit.Equal(t, "secrets", got, []string{"a=b", "hun/t%20er2", "hun/t er2", "swordfish", "other"})
}

func TestNames_FindSecretsInArguments(t *testing.T) {
	args := []string{"--data", "/srv", "--api-token=one", "-password", "-two", "--card-pin", "1234", "--token=", "PASSWORD=three",
		"--url=https://kv:four@example.com/", "-H", "X: five", "--token", "--secret", "plain", "--secret"}
	given := slices.Clone(args)
	n := mask.NewNames([]string{"*_PIN"})
	testkit.Equal(t, "secrets", n.Args(args), []string{"one", "-two", "1234", "three", "--secret", "four"})
	want := []string{"--data", "/srv", "--api-token=***", "-password", "***", "--card-pin", "***", "--token=", "PASSWORD=***",
		"--url=https://kv:***@example.com/", "-H", "X: ***", "--token", "***", "plain", "--secret"}
	args[11], given[11] = "X: fiveandmore", "X: fiveandmore"
	testkit.Equal(t, "shown", n.HideArgs(args, mask.New([]string{"fiveandmore"})), want)
	testkit.Equal(t, "the arguments themselves", args, given)
}

func TestNames_HideEnvMasksSecretsInValueOfVariable(t *testing.T) {
	n, m := mask.NewNames(nil), mask.New([]string{"hunter2"})
	var shown []string
	for _, v := range []string{"TOKEN=x", "TOKEN=", "A=b", "MOTTO=of hunter2", "URL=http://u:p@h/"} {
		name, value, _ := strings.Cut(v, "=")
		shown = append(shown, n.HideEnv(name, value, m))
	}
	testkit.Equal(t, "values", shown, []string{"***", "", "b", "of ***", "http://u:***@h/"})
}
