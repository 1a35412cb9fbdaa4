// Package canary judges the canaries of a roll once, by a command or a Prometheus query.
package canary

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/promquery"
	"github.com/swansong-go/swansong/launcher/internal/spawn"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// A Check is one check of the canaries. The controller of the group makes one at each interval, and
// decides what follows from the result; a Check only judges.
type Check struct {
	spec.CanaryCheck
	Group    string
	Revision int
	Canaries []string // ids of the canaries
	In       proc.Containment
}

// Run returns why the canaries have failed the check, and "" if they have passed it. An error means
// that the check gave no result.
func (k Check) Run(ctx context.Context) (failed string, err error) {
	if k.Prometheus != "" {
		query := strings.NewReplacer("{group}", k.Group, "{ids}", strings.Join(k.Canaries, "|")).Replace(k.Query)
		holds, value, err := promquery.Holds(ctx, k.Prometheus, query)
		switch {
		case err != nil && ctx.Err() != nil:
			return "", fmt.Errorf("prometheus at %s: %w", k.Prometheus, context.Cause(ctx))
		case err != nil || holds:
			return "", err
		}
		return fmt.Sprintf("the query has the value %s", value), nil
	}
	return k.execute(ctx)
}

// execute runs the command of the check. The canaries pass if the exit code is 0. The environment
// of the command contains the ids of the canaries, separated by spaces. If the command cannot be
// started, execute returns an error, because nothing is known about the canaries.
func (k Check) execute(ctx context.Context) (failed string, err error) {
	env := append(spawn.InheritedEnv(os.Environ()), "SWANSONG_PROCESS_GROUP="+k.Group, fmt.Sprintf("SWANSONG_REVISION=%d", k.Revision),
		"SWANSONG_CANARIES="+strings.Join(k.Canaries, " "))
	exit, last, err := spawn.Run(ctx, k.In, "", k.Command, env)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", k.Command[0], context.Cause(ctx))
	case err != nil:
		return "", err
	case exit.Code == 0 && exit.Signal == 0:
		return "", nil
	}
	return strings.TrimSuffix(exit.String()+": "+last, ": "), nil
}
