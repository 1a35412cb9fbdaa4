package config

import (
	"time"

	"github.com/swansong-go/swansong/launcher"
)

// Retry says whether and when a replacement that fails is tried again.
type Retry struct {
	Policy  launcher.Retry `yaml:"policy"`          // default manual
	Limit   int            `yaml:"limit"`           // default 3; consecutive failures that are retried
	Initial time.Duration  `yaml:"initial_backoff"` // default 1s; first pause if Policy is exponential
	Max     time.Duration  `yaml:"max_backoff"`     // default 1m; longest pause if Policy is exponential
}

// Canary says how many instances are replaced first.
type Canary struct {
	Instances int           `yaml:"instances"` // default 0: no canaries
	Wait      time.Duration `yaml:"wait"`      // default 1m; how long the canaries must stay READY before other instances are replaced
	Check     CanaryCheck   `yaml:"check"`
}

// A CanaryCheck judges the canaries by a command or by a query of Prometheus; see
// [launcher.CanaryCheck].
type CanaryCheck struct {
	Command    string        `yaml:"command"`    // an absolute path, or a name that is looked up in PATH; not passed to a shell
	Args       []string      `yaml:"args"`       // arguments of Command
	Prometheus string        `yaml:"prometheus"` // address of a server, such as http://127.0.0.1:9090
	Query      string        `yaml:"query"`      // expression whose value is 0 if the canaries are bad
	Interval   time.Duration `yaml:"interval"`   // default 10s
	Timeout    time.Duration `yaml:"timeout"`    // default 5s
}
