package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// An Rlimit is a soft and a hard limit, as in 1024:4096, or one number for both. A limit can be
// unlimited.
type Rlimit string

// Limits bound what an instance uses together with the processes that it has started.
type Limits struct {
	Memory        Bytes                  `yaml:"memory"`         // default 0: no limit
	CPUs          float64                `yaml:"cpus"`           // number of processors, as in 0.5; default 0: no limit
	IfUnavailable launcher.IfUnavailable `yaml:"if_unavailable"` // default refuse
}

// rlimits returns the limits in the order of their names.
func (g *Group) rlimits() (all []launcher.Rlimit) {
	for _, name := range slices.Sorted(maps.Keys(g.Rlimits)) {
		if soft, hard, rule := g.Rlimits[name].parse(); rule == "" {
			all = append(all, launcher.Rlimit{Name: name, Soft: soft, Hard: hard})
		}
	}
	return all
}

// parse returns the limits, or what is wrong with them.
func (r Rlimit) parse() (soft, hard uint64, rule string) {
	first, second, both := strings.Cut(string(r), ":")
	if !both {
		second = first
	}
	for _, side := range []struct {
		text string
		to   *uint64
	}{{first, &soft}, {second, &hard}} {
		n, err := strconv.ParseUint(side.text, 10, 64)
		switch {
		case side.text == "unlimited":
			n = spec.Unlimited
		case err != nil:
			return 0, 0, fmt.Sprintf("must be soft:hard or one number for both, such as 1024:4096, 65536 or unlimited, not %q", string(r))
		}
		*side.to = n
	}
	return soft, hard, ""
}

// checkRlimits checks the names and the values of rlimits.
func (k *checker) checkRlimits(at string, g *Group) {
	for _, name := range slices.Sorted(maps.Keys(g.Rlimits)) {
		key := at + ".rlimits." + name
		if k.wrong[key] {
			continue
		}
		k.must(slices.Contains(spec.RlimitNames, name), key, "is no limit; the limits are %s", strings.Join(spec.RlimitNames, ", "))
		soft, hard, rule := g.Rlimits[name].parse()
		k.must(rule == "", key, "%s", rule)
		k.must(soft <= hard, key, "the soft limit is more than the hard limit: %s", g.Rlimits[name])
	}
}
