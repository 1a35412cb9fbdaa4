// Accept asks the code of Nomad's server whether it would take the jobs in files: it fills in what is not given and looks for
// what is wrong, as the server does when a job is registered. No server runs.
//
// A module of its own, and not in go.work: Nomad requires much, in versions that would become those of others here.
//
//	cd launcher/internal/nomad && GOWORK=off go run ./accept ../../export/testdata/nomad/*.json
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "accept:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		return errors.New("name the files to be asked about")
	}
	var refused error
	for _, name := range files {
		if err := validate(name); err != nil {
			fmt.Printf("%s: Nomad %s refuses it: %v\n", name, version(), err)
			refused = errors.New("not all were accepted")
			continue
		}
		fmt.Printf("%s: Nomad %s accepts it\n", name, version())
	}
	return refused
}

func validate(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var file struct{ Job *api.Job }
	if err := strictly(text, &file); err != nil {
		return err
	}
	file.Job.Canonicalize()
	// What the API has and what the server keeps have the same names, apart from settings that are not used any more. The
	// server copies field by field, in a package that brings most of Nomad with it.
	if text, err = json.Marshal(file.Job); err != nil {
		return err
	}
	var job structs.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	job.Canonicalize()
	return errors.Join(job.Validate(), job.Warnings())
}

func strictly(text []byte, to any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	return in.Decode(to)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/hashicorp/nomad" {
				return m.Version
			}
		}
	}
	return "unknown"
}
