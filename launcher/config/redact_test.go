package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/config"
)

func TestRedactor_ReplacesSecretsInTexts(t *testing.T) {
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
			"exec web --verbose --token hunter2 -n 1":        "exec web --verbose --token [redacted] -n 1",
			`run ["web", "--api-key", "hunter2", "-v"]`:      `run ["web", "--api-key", "[redacted]", "-v"]`,
			"-password 'hunter 2' --card-pin -1234":          "-password [redacted] --card-pin [redacted]",
			"--- PASS: TestToken (0.1s), and a-token is it":  "--- PASS: TestToken (0.1s), and a-token is it",
			`{"args":["--token","hunter2","-v"]}`:            `{"args":["--token","[redacted]","-v"]}`,
			`{"args":["--token","hun\"ter2","-v"]}`:          `{"args":["--token","[redacted]","-v"]}`,
			`{"args":["--token",{"a":"hunter2"},"-v"]}`:      `{"args":["--token","[redacted]","-v"]}`,
			`{"args":["--token=a","hunter1","-v"]}`:          `{"args":["--token=[redacted]","hunter1","-v"]}`,
			`{"msg":"[\"--token\",\"hun\\\"ter2\",\"-v\"]"}`: `{"msg":"[\"--token\",\"[redacted]\",\"-v\"]"}`,
			`{"msg":"[\"--token\", \"hunter2\", \"-v\"]"}`:   `{"msg":"[\"--token\", \"[redacted]\", \"-v\"]"}`,
			// JSON inside a line of text stays JSON.
			`12:30 {"args":["--token","hunter2","-v"]}`:              `12:30 {"args":["--token","[redacted]","-v"]}`,
			`12:30 {"args":["--token","hun\"ter2","-v"]}`:            `12:30 {"args":["--token","[redacted]","-v"]}`,
			`12:30 {"msg":"[\"--token\",\"hun\\\"ter2\",\"-v\"]"}`:   `12:30 {"msg":"[\"--token\",\"[redacted]\",\"-v\"]"}`,
			`12:30 {"msg":"[\"--token\", \"hunter2\", \"-v\"]"}`:     `12:30 {"msg":"[\"--token\", \"[redacted]\", \"-v\"]"}`,
			"exec [--token hunter2 -v]":                              "exec [--token [redacted] -v]",
			"{Args:[web -token hunter2]}":                            "{Args:[web -token [redacted]",
			"mysql --password='a b'\"c d\"hunter2 -e":                "mysql --password=[redacted] -e",
			`+ mysql --password 'it'\''hunter2' -e`:                  "+ mysql --password [redacted] -e",
			`+ mysql --password ''\''hun ter2'\''' -e`:               "+ mysql --password [redacted] -e",
			`+ mysql --password 'it'"'"'s hunter2' -e`:               "+ mysql --password [redacted] -e",
			`{"msg":"+ mysql --password='it'\\''hunter2' -e"}`:       `{"msg":"+ mysql --password=[redacted] -e"}`,
			`12:30 {"msg":"+ mysql --password='it'\\''hunter2' -e"}`: `12:30 {"msg":"+ mysql --password=[redacted] -e"}`,
			"--log-level debug --token":                              "--log-level debug --token",
		} {
			if diff := cmp.Diff(want, r.Text(text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
	t.Run("what logs have", func(t *testing.T) {
		for text, want := range map[string]string{
			`{"level":"info","password":"hunter2"}`:                       `{"level":"info","password":"[redacted]"}`,
			`{"api_token": "hun\"ter2", "n": 1}`:                          `{"api_token": "[redacted]", "n": 1}`,
			`{"card-pin":1234}`:                                           `{"card-pin":"[redacted]"}`,
			`{"msg":"{\"password\":\"hun\\\"ter2\",\"n\":1}"}`:            `{"msg":"{\"password\":\"[redacted]\",\"n\":1}"}`,
			`{"password":""}`:                                             `{"password":"[redacted]"}`,
			`{"password":null,"n":1}`:                                     `{"password":"[redacted]","n":1}`,
			`{"secret":true}`:                                             `{"secret":"[redacted]"}`,
			`{"db":{"user":"kv","password":"hunter2"},"n":1}`:             `{"db":{"user":"kv","password":"[redacted]"},"n":1}`,
			`{"password":{"old":"hunter2","new":"hunter2"}}`:              `{"password":"[redacted]"}`,
			`{"n":[{"password":["hunter2"]},2]}`:                          `{"n":[{"password":"[redacted]"},2]}`,
			`{"n":{"password":"hunter2"},"m":"a token is it"}`:            `{"n":{"password":"[redacted]"},"m":"a token is it"}`,
			`{"msg":"no password=","user":"kv"}`:                          `{"msg":"no password=","user":"kv"}`,
			`{"msg":"no password=", "n" : 1 }`:                            `{"msg":"no password=", "n" : 1 }`,
			`{"msg":"no password:","user":"kv"}`:                          `{"msg":"no password:","user":"kv"}`,
			`{"msg":"what is --token","user":"kv"}`:                       `{"msg":"what is --token","user":"kv"}`,
			`{"url":"http://kv:hunter2","mail":"a@b"}`:                    `{"url":"http://kv:hunter2","mail":"a@b"}`,
			`{"url":"http://kv:hunter2@b","mail":"a@b"}`:                  `{"url":"http://kv:[redacted]@b","mail":"a@b"}`,
			"{\"msg\":\"password=hunter2 <of> kv\",\"n\":\"<a>\\u0026\"}": "{\"msg\":\"password=[redacted] <of> kv\",\"n\":\"<a>\\u0026\"}",
			` [ {"msg":"no password=","token":"hunter2"} , -1e3 ] `:       ` [ {"msg":"no password=","token":"[redacted]"} , -1e3 ] `,
			`{"status":{"http://kv:hunter2@db/":200}}`:                    `{"status":{"http://kv:[redacted]@db/":200}}`,
			`{"password=hunter2":1,"n":2}`:                                `{"password=[redacted]":"[redacted]","n":2}`,
			`{"of {\"token\":\"hunter2\"}":[1]}`:                          `{"of {\"token\":\"[redacted]\"}":"[redacted]"}`,
			`{"p\u0061ssword":"hunter2","n":"\u00e9"}`:                    `{"p\u0061ssword":"[redacted]","n":"\u00e9"}`,
			`{"msg":"p\u0061ssword=hunter2"}`:                             `{"msg":"password=[redacted]"}`,
			`{"msg":"{\"p\\u0061ssword\":\"hunter2\"}"}`:                  `{"msg":"{\"p\\u0061ssword\":\"[redacted]\"}"}`,
			`{"url":"http:\/\/kv:hunter2@db\/kv","n":"a@b"}`:              `{"url":"http://kv:[redacted]@db/kv","n":"a@b"}`,
			`{"url":"http\u003a//kv:hunter2@db"}`:                         `{"url":"http://kv:[redacted]@db"}`,
			`{"at":"http:\/\/db\/"}`:                                      `{"at":"http:\/\/db\/"}`,
			`12:30 {"url":"http:\/\/kv:hunter2@db\/kv"}`:                  `12:30 {"url":"http:\/\/kv:[redacted]@db\/kv"}`,
			`12:30 {"msg":"{\"url\":\"http:\\\/\\\/kv:hunter2@db\"}"}`:    `12:30 {"msg":"{\"url\":\"http:\\\/\\\/kv:[redacted]@db\"}"}`,
			`"C:\\kv"`:                                       `"C:\\kv"`,
			"tokens = [hunter2, hunter2] # of kv":            "tokens = [redacted]",
			`n=1 credentials={"a":"hunter2", "b":"hunter2"}`: "n=1 credentials=[redacted]",
			`{"msg":"credentials = {\n  user: u,\n  value: hunter2\n}","n":1}`: `{"msg":"credentials = [redacted]","n":1}`,
			// The rest of a text that another program has redacted in part is redacted as well.
			"token=[redacted]hunter2 of kv":      "token=[redacted] of kv",
			"of token: [redacted]hunter2, of kv": "of token: [redacted], of kv",
			"--token [redacted]-hunter2 -v":      "--token [redacted] -v",
			`{"msg":"token=[redacted]hunter2"}`:  `{"msg":"token=[redacted]"}`,
			"got (token=[redacted])":             "got (token=[redacted])",
			"https://token:hunter2@db/kv":        "https://token:[redacted]@db/kv",
			// A string can have several lines.
			`{"msg":"credentials: {\n  user: u,\n  value: hunter2\n}","n":1}`:               `{"msg":"credentials: [redacted]","n":1}`,
			`{"msg":"loaded: {\n \"credentials\": {\n  \"a\": \"hunter2\"\n }\n}"}`:         `{"msg":"loaded: {\n \"credentials\": \"[redacted]\""}`,
			`{"msg":"tokens: [\n  hunter2,\n  hunter2\n]"}`:                                 `{"msg":"tokens: [redacted]"}`,
			`{"msg":"Authorization: Digest a=\"hunter2\",\r\n b=\"hunter2\"\r\nAccept: a"}`: `{"msg":"Authorization: [redacted]\nAccept: a"}`,
			`{"msg":"GET /\nCookie: a=hunter2;\n\tb=hunter2;\n c=hunter2\n\n of kv"}`:       `{"msg":"GET /\nCookie: [redacted]\n\n of kv"}`,
			"GET /\nSet-Cookie:\n a=hunter2;\n b=hunter2\nof kv":                            "GET /\nSet-Cookie: [redacted]\nof kv",
			// JSON inside a line of text stays JSON, if possible.
			`12:30 {"msg":"no password=","user":"kv"}`:                   `12:30 {"msg":"no password=","user":"kv"}`,
			`12:30 {"msg":"no password=","token":"hunter2"}`:             `12:30 {"msg":"no password=","token":"[redacted]"}`,
			`12:30 {"msg":"no password:","user":"kv"}`:                   `12:30 {"msg":"no password:","user":"kv"}`,
			`12:30 {"user":"kv","msg":"no password="}`:                   `12:30 {"user":"kv","msg":"no password="}`,
			`12:30 {"user":"kv","msg":"no token ="} {"n":1}`:             `12:30 {"user":"kv","msg":"no token ="} {"n":1}`,
			`12:30 {"level":"info","password":"hunter2"}`:                `12:30 {"level":"info","password":"[redacted]"}`,
			`12:30 {"api_token": "hun\"ter2", "n": 1}`:                   `12:30 {"api_token": "[redacted]", "n": 1}`,
			`12:30 {"card-pin":1234}`:                                    `12:30 {"card-pin":"[redacted]"}`,
			`12:30 {"msg":"{\"password\":\"hun\\\"ter2\",\"n\":1}"}`:     `12:30 {"msg":"{\"password\":\"[redacted]\",\"n\":1}"}`,
			`12:30 {"msg":"{\"m\":\"no password=\",\"n\":\"kv\"}"}`:      `12:30 {"msg":"{\"m\":\"no password=\",\"n\":\"kv\"}"}`,
			`12:30 {"msg":"login, password=\"hun ter2\" of kv"}`:         `12:30 {"msg":"login, password=[redacted] of kv"}`,
			`12:30 {"msg":"login, password = \"hun ter2\" of kv"}`:       `12:30 {"msg":"login, password = [redacted] of kv"}`,
			`12:30 {"tokens":["hunter2","hunter2"]}`:                     `12:30 {"tokens":"[redacted]"`,
			`password=""hunter2 of kv`:                                   `password=[redacted] of kv`,
			"{\n  \"token\" : \"hunter2\",\n  \"n\": 1\n}":               "{\n  \"token\" : \"[redacted]\",\n  \"n\": 1\n}",
			`{"url":"postgres://kv:hunter2@db/kv","n":1}`:                `{"url":"postgres://kv:[redacted]@db/kv","n":1}`,
			`{"pass\u0077ord":"hunter2","token":1}`:                      `{"pass\u0077ord":"[redacted]","token":"[redacted]"}`,
			`{"headers":{"Authorization":"Bearer hunter2","n":1}}`:       `{"headers":{"Authorization":"[redacted]","n":1}}`,
			`{"tokens":["hunter2","hunter2"]}`:                           `{"tokens":"[redacted]"}`,
			`{'secret': 'hunter2', 'n': 1}`:                              `{'secret': '[redacted]', 'n': 1}`,
			`cut off: {"password":"hun ter`:                              `cut off: {"password":"[redacted]"`,
			"GET / Authorization: Bearer hunter2":                        "GET / Authorization: [redacted]",
			`GET / Authorization: Digest username="kv", nonce="hunter2"`: "GET / Authorization: [redacted]",
			"GET / Set-Cookie: a=hunter2; b=hunter2":                     "GET / Set-Cookie: [redacted]",
			"map[Authorization:[Bearer hunter2] Accept:[a]]":             "map[Authorization:[redacted]",
			"authorization=Bearer hunter2 n=1":                           "authorization=[redacted] n=1",
			"login failed, password: hunter2":                            "login failed, password: [redacted]",
			"ERROR: main: password: hunter2":                             "ERROR: main: password: [redacted]",
			"of query=/kv?password=hunter2":                              "of query=/kv?password=[redacted]",
			"login failed, password: hunter2, of kv":                     "login failed, password: [redacted], of kv",
			"mysql --password \"hun\\\nter2\" -e x":                      "mysql --password [redacted] -e x",
			"login failed, password=\"hunter2\\":                         "login failed, password=[redacted]",
			"GET / Set-Coo\u212aie: a=hunter2":                           "GET / Set-Coo\u212aie: [redacted]",
			`login failed, password: "hun ter2" of kv`:                   "login failed, password: [redacted] of kv",
			"got {User:kv Password:hunter2}":                             "got {User:kv Password:[redacted]",
			`msg=login password="hun\"ter2" user=kv`:                     "msg=login password=[redacted] user=kv",
			"GET / Cookie: a=hunter2; b=hunter2\nof kv":                  "GET / Cookie: [redacted]\nof kv",
			"of kv, card-pin: 1234":                                      "of kv, card-pin: [redacted]",
			`{"msg":"passphrase: hunter2 hunter2\n"}`:                    `{"msg":"passphrase: [redacted]\n"}`,
			"of kv:\npassphrase: hunter2, \"hunter2\nof kv: a b":         "of kv:\npassphrase: [redacted]\nof kv: a b",
			"db:\n  - passphrase: hunter2 hunter2\n    user: a b":        "db:\n  - passphrase: [redacted]\n    user: a b",
			"\tpassphrase: hunter2 hunter2":                              "\tpassphrase: [redacted]",
			// The next values are YAML texts and lists in the lines below their key.
			"db:\n  password: |\n    hunter2\n\n     hunter2\n\n  user: a":       "db:\n  password: [redacted]\n\n  user: a",
			"- password: >-2 # folded\r\n   hunter2\r\n  user: a":                "- password: [redacted]\r\n  user: a",
			"password: hun\n  ter2 hunter2\nuser: a":                             "password: [redacted]\nuser: a",
			"password:\n  hun: hunter2\n  ter: hunter2\nuser: a":                 "password: [redacted]\nuser: a",
			"tokens:\n- hunter2\n- hunter2\nuser: a":                             "tokens: [redacted]\nuser: a",
			"- - tokens:\n    - hunter2\n    - hunter2\n  - user: a":             "- - tokens: [redacted]\n  - user: a",
			"tokens:\n\n- hunter2\n  hunter2\n- hunter2":                         "tokens: [redacted]",
			"password: \"hun\nter2\" of kv\n  of kv":                             "password: [redacted]",
			"\"password\": |\n  hunter2\n  hunter2\nuser: a":                     "\"password\": \"[redacted]\"\nuser: a",
			"'password': hun\n  ter2 hunter2\nuser: a":                           "'password': '[redacted]'\nuser: a",
			"'password':\n  hun: hunter2\n  ter: hunter2\nuser: a":               "'password': '[redacted]'\nuser: a",
			"\"tokens\":\n- hunter2\n- hunter2\nuser: a":                         "\"tokens\": \"[redacted]\"\nuser: a",
			"\"password\":\n  \"hunter2\"\n  hunter2\nuser: a":                   "\"password\":\n  \"[redacted]\"\nuser: a",
			"password:\n-\n  hunter2\n- hunter2\nuser: a":                        "password: [redacted]\nuser: a",
			"tokens:\n- - hunter2\n  - hunter2\nuser: a":                         "tokens: [redacted]\nuser: a",
			"\"password: hunter2\", of kv":                                       "\"password: [redacted]\", of kv",
			"- \"token\":\n- password: hunter2\n- a: b":                          "- \"token\":\n- password: [redacted]\n- a: b",
			"- X-Auth-Token:\n  - Authorization: Bearer hunter2\n- a: b":         "- X-Auth-Token: [redacted]\n- a: b",
			"of kv: token:\n  - a: hunter2\n  - b: hunter2":                      "of kv: token: [redacted]",
			"12:30 {\n \"password\":\n   \"hunter2\", \"n\": 1,\n   \"m\": 2\n}": "12:30 {\n \"password\":\n   \"[redacted]\", \"n\": 1,\n   \"m\": 2\n}",
			`12:30 {"msg":"api_key: | # of kv","n":1}`:                           `12:30 {"msg":"api_key: [redacted] # of kv","n":1}`,
			"no such key: |\n  a":                                                "no such key: |\n  a",
			"password: -\nuser: a":                                               "password: [redacted]\nuser: a",
			"of kv: password: |\n  hunter2\n  hunter2\nof kv":                    "of kv: password: [redacted]\nof kv",
			"12:30 \"password\": >-\r\n  hunter2\r\n  hunter2\r\nof kv":          "12:30 \"password\": \"[redacted]\"\r\nof kv",
			"of kv: tokens:\n  - hunter2\n  - hunter2\nof kv":                    "of kv: tokens: [redacted]\nof kv",
			"- of kv: tokens:\n\n  -\n    hunter2\n  - hunter2\n- of kv: a b":    "- of kv: tokens: [redacted]\n- of kv: a b",
			"of kv: password: hunter2\n\tof kv":                                  "of kv: password: [redacted]\n\tof kv",
			"12:30 {\n  \"token\":\n    \"hunter2\",\n  \"n\": 1\n}":             "12:30 {\n  \"token\":\n    \"[redacted]\",\n  \"n\": 1\n}",
			"12:30 {\n  \"token\": \"hunter2\", \"n\": 1\n}":                     "12:30 {\n  \"token\": \"[redacted]\", \"n\": 1\n}",
			`{"file":"password: |\n  hunter2\n  hunter2\nuser: a\n","n":1}`:      `{"file":"password: [redacted]\nuser: a\n","n":1}`,
			"tokens: [hunter2\nhunter2":                                          "tokens: [redacted]",
			"vet:\n\ttoken.go:12: undefined: a\ntoken.go:13: no":                 "vet:\n\ttoken.go:12: undefined: a\ntoken.go:13: no",
			"+ kv $'--password=hunter2\\nhunter2' -v":                            "+ kv $'--password=[redacted]' -v",
			"+ kv --password $'hun\\'ter2 hunter2' -v":                           "+ kv --password [redacted] -v",
			"+ kv PASSWORD=$'hun ter2' -v":                                       "+ kv PASSWORD=[redacted] -v",
			"+ env 'PASSWORD=hun ter2' kv 'a b'":                                 "+ env 'PASSWORD=[redacted]' kv 'a b'",
			"+ kv \"--password=hun\\\" ter2\" -v":                                "+ kv \"--password=[redacted]\" -v",
			"+ kv '--password=hun ter2":                                          "+ kv '--password=[redacted]",
			`12:30 {"args":["--password=hun ter2","-v"]}`:                        `12:30 {"args":["--password=[redacted]","-v"]}`,
			`12:30 {"msg":"run: [\"--password=hun ter2\",\"-v\"]"}`:              `12:30 {"msg":"run: [\"--password=[redacted]\",\"-v\"]"}`,
			"password = hunter2":                                                 "password = [redacted]",
			"db_password = \"hun ter2\" # of kv":                                 "db_password = [redacted] # of kv",
			"token => hunter2, n => 1":                                           "token => [redacted], n => 1",
			`{"token"=>"hunter2", "n"=>1}`:                                       `{"token"=>[redacted], "n"=>1}`,
			"got token == hunter2":                                               "got token == [redacted]",
			"api_token := \"hunter2\"":                                           "api_token := [redacted]",
			`{"msg":"login, password=\"hun ter2\" of kv"}`:                       `{"msg":"login, password=[redacted] of kv"}`,
			`{"msg":"login, password = \"hun ter2\" of kv"}`:                     `{"msg":"login, password = [redacted] of kv"}`,
			"a token = 1\nand = 2":                                               "a token = [redacted]\nand = 2",
			"the monkey = ape, and a token =\n1":                                 "the monkey = ape, and a token =\n1",
			`{"level":"info","monkey":"ape","at":"12:30"}`:                       `{"level":"info","monkey":"ape","at":"12:30"}`,
			"no such key: ape":                                                   "no such key: ape",
			"\t/src/auth/token.go:12 +0x1f":                                      "\t/src/auth/token.go:12 +0x1f",
			"2026-01-02T12:30:00Z listening on [::1]:80: it is http://a/":        "2026-01-02T12:30:00Z listening on [::1]:80: it is http://a/",
		} {
			got := r.Text(text)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, r.Text(got)); diff != "" {
				t.Errorf("redacting the result changes it (-first +second):\n%s", diff)
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
		testkit.Equal(t, "the arguments themselves have changed", args, given)
	})
}

// A pattern need not contain a fixed string.
func TestRedactor_AcceptsPatternsWithoutFixedString(t *testing.T) {
	for _, test := range []struct{ pattern, name string }{
		{"*", "anything"}, {"???", "abc"}, {"[ab]c", "BC"}, {`\*d`, "*d"}, {"a?*z", "a-z"}, {"pin", "PIN"}, {"x-y*", "X_YZ"},
	} {
		r := config.NewRedactor("*PIN", test.pattern)
		for text, want := range map[string]string{"--" + test.name + " hunter2": "--" + test.name + " [redacted]",
			`{"` + test.name + `":"hunter2"}`: `{"` + test.name + `":"[redacted]"}`, test.name + "=hunter2": test.name + "=[redacted]"} {
			if strings.HasPrefix(test.name, "*") && !strings.HasPrefix(text, "{") {
				want = text // the text is not a name
			}
			if diff := cmp.Diff(want, r.Text(text)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.pattern, diff)
			}
		}
		if diff := cmp.Diff(config.Redacted, r.Env(test.name, "hunter2")); diff != "" {
			t.Errorf("%s, of a variable (-want +got):\n%s", test.pattern, diff)
		}
	}
}

// The cost of a long line with many names is linear in its length. If the text before each name
// were searched, this test would take minutes.
func TestRedactor_TakesLinearTimeForLongLines(t *testing.T) {
	const times = 30_000
	r := config.NewRedactor()
	for unit, shown := range map[string]string{"PASSWORD=a ": "PASSWORD=[redacted] ", "token=a\"": "token=[redacted]\""} {
		if got := r.Text(strings.Repeat(unit, times)); got != strings.Repeat(shown, times) {
			t.Errorf("%q repeated is redacted to %.50q … of %d bytes", unit, got, len(got))
		}
	}
}
