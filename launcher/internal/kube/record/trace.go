package main

// A trace is a roll of a Deployment, whose replicas were all ready before. Its old ones are those of the template that it
// had then, its new ones those of the one it has been given.
type trace struct {
	Version     string `json:"version"` // of Kubernetes
	Desired     int32  `json:"desired"`
	Surge       int32  `json:"maxSurge"`
	Unavailable int32  `json:"maxUnavailable"`
	MinReady    bool   `json:"minReady,omitempty"` // whether one that is ready has to stay so to be available
	Life        life   `json:"life"`
	Steps       []step `json:"steps"`
}

// A step is something that has happened, and what the controllers have made of it.
type step struct {
	Event string    `json:"event"`           // "update", "undo"; "ready", "prove", "relapse" before that, "crash", "end" of "old" or "new"
	Scale []string  `json:"scale,omitempty"` // decisions, in order: how many old or new ones there shall be
	Then  [2]counts `json:"then"`            // old and new, when nothing more happens
}

// A counts is how many pods are starting, ready for too short a time, available, and terminating.
type counts [4]int

const (
	starting = iota
	fresh
	available
	terminating
)

// A life is how pods behave.
type life string

const (
	prompt   life = "prompt"   // they end at once, and become ready one after the other
	slow     life = "slow"     // they end when nothing else is left to happen
	crashing life = "crashing" // some crash when they are ready, some are late to be, and all comes in any order
	proving  life = "proving"  // as crashing; and none is available as soon as it is ready
	undo     life = "undo"     // as crashing; and at some time the Deployment is given its old template back
)

// grid is every small Deployment, in every life.
func grid(version string, largest int) (all []*trace) {
	for desired := range int32(largest + 1) {
		for surge := range int32(4) {
			for unavailable := range desired + 1 {
				if surge == 0 && unavailable == 0 {
					continue
				}
				for _, l := range []life{prompt, slow, crashing, proving, undo} {
					all = append(all, &trace{Version: version, Desired: desired, Surge: surge, Unavailable: unavailable, MinReady: l == proving, Life: l})
				}
			}
		}
	}
	return all
}
