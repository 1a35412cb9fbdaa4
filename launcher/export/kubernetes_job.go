package export

import (
	"math"
	"slices"
	"strings"

	"github.com/swansong-go/swansong/launcher"
)

type job struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       jobSpec  `yaml:"spec"`
}

type jobSpec struct {
	Completions  int   `yaml:"completions"`
	Parallelism  int   `yaml:"parallelism"`
	BackoffLimit int64 `yaml:"backoffLimit"`
	Template     pod   `yaml:"template"`
}

// kubernetesJob returns the Job of a group of the kind job. Kubernetes counts a pod that has exited
// with 0 as completed, and retries others until backoffLimit, which is a limit for the Job as a
// whole.
func (g group) kubernetesJob() job {
	template := g.pod()
	template.Spec.RestartPolicy = "OnFailure"
	limit := int64(g.Restart.CrashLimit)
	switch {
	case g.Restart.Policy == launcher.Never:
		template.Spec.RestartPolicy, limit = "Never", 0
	case limit == 0:
		limit = math.MaxInt32 // the configuration sets no limit
	}
	return job{APIVersion: "batch/v1", Kind: "Job", Metadata: metadata{g.Name, g.labels()},
		Spec: jobSpec{Completions: g.Desired, Parallelism: g.Desired, BackoffLimit: limit, Template: template}}
}

// kubernetesJobGaps lists the settings that a Job of Kubernetes supports in another way than the
// launcher.
func (g group) kubernetesJobGaps() {
	g.gap(g.Export.Image == "", "export.image", "is missing; replace the image in the file, which is the name of the group")
	g.gap(g.Restart.Policy == launcher.Always, "restart_policy", "always is not possible: a pod of a Job that has succeeded is not started again")
	g.gap(g.Restart.Policy != launcher.Never, "restart_policy.crash_loop_limit", "counts the failures of all instances together (backoffLimit), with the back-off of Kubernetes")
	g.gap(!slices.Equal(g.Shutdown.SuccessCodes, []int{0}), "success_exit_codes", "only 0 is a success")
	g.gap(len(g.DependsOn) > 0, "depends_on", "Jobs have no order; let the process wait until it can reach %s", strings.Join(g.DependsOn, ", "))
	g.gap(!slices.Equal(g.Shutdown.StopSignals, []string{"SIGTERM"}), "stop_signals", "the image sets the signal (STOPSIGNAL), and there is only one")
	g.gap(g.Log.Dir != "", "logs", "output goes to the log of the node, with the limits of the node")
}
