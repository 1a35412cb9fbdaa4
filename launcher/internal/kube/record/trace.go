package main

// A trace is a roll of a Deployment whose replicas were all ready before. Old replicas have the
// template from before the roll. New replicas have the template that it rolls to. If a second
// update comes before the roll has ended, newer replicas have the template of that update.
type trace struct {
	Version     string `json:"version"` // version of Kubernetes
	Desired     int32  `json:"desired"`
	Surge       int32  `json:"maxSurge"`
	Unavailable int32  `json:"maxUnavailable"`
	MinReady    bool   `json:"minReady,omitempty"` // whether a replica must stay ready for some time to be available
	Life        life   `json:"life"`
	Steps       []step `json:"steps"`
}

// A step is an event, and the decisions of the controllers that followed.
type step struct {
	// Event is what happened. It is "update", "undo" or "supersede" of the Deployment, or what a
	// pod did ("ready", "prove", "relapse" before "prove", "crash" or "end") and which pods it
	// belongs to ("old", "new" or "newer"), as in "ready old".
	Event string   `json:"event"`
	Scale []string `json:"scale,omitempty"` // decisions of the controllers in order: the numbers of old or new replicas that they set
	Then  []counts `json:"then"`            // numbers of pods when the controllers are idle again: old, new and, in a trace with a third template, newer
}

// A counts has the numbers of pods that are starting, ready for too short a time, available, and
// terminating.
type counts [4]int

const (
	starting = iota
	fresh
	available
	terminating
)

// A life describes how the pods of a Deployment behave.
type life string

const (
	prompt    life = "prompt"    // a pod ends as soon as it is deleted, and the pods become ready one after the other
	slow      life = "slow"      // a pod ends only when the simulation has no other event left
	crashing  life = "crashing"  // some pods crash after becoming ready, some become ready late, and events come in any order
	proving   life = "proving"   // the pods behave as in crashing, and a pod is available only some time after it has become ready
	undo      life = "undo"      // the pods behave as in crashing; during the rollout, the Deployment gets its old template back
	supersede life = "supersede" // the pods behave as in crashing; during the rollout, the Deployment gets a third template, which supersedes the second one
)

// grid returns traces for every small Deployment and every life.
func grid(version string, largest int) []*trace {
	// The traces with the life supersede come after all others. The random choices of a trace
	// depend on its number, so a trace that was inserted before others would change them.
	return append(gridOf(version, largest, prompt, slow, crashing, proving, undo), gridOf(version, largest, supersede)...)
}

func gridOf(version string, largest int, lives ...life) (all []*trace) {
	for desired := range int32(largest + 1) {
		for surge := range int32(4) {
			for unavailable := range desired + 1 {
				if surge == 0 && unavailable == 0 {
					continue
				}
				for _, l := range lives {
					all = append(all, &trace{Version: version, Desired: desired, Surge: surge, Unavailable: unavailable, MinReady: l == proving, Life: l})
				}
			}
		}
	}
	return all
}
