// Accept checks with the code of Nomad's server whether it accepts the jobs in files: it fills in
// defaults and validates, as the server does when a job is registered. No server runs.
//
// It is a module of its own, and not in go.work, because Nomad's dependencies would determine the
// versions of shared dependencies of the other modules.
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
		return errors.New("no job files given; pass their paths as arguments")
	}
	var refused error
	for _, name := range files {
		if err := validate(name); err != nil {
			fmt.Printf("%s: Nomad %s refuses the file: %v\n", name, version(), err)
			refused = errors.New("Nomad has refused at least one of the files")
			continue
		}
		fmt.Printf("%s: Nomad %s accepts the file\n", name, version())
	}
	return refused
}

func validate(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var file struct{ Job *api.Job }
	if err := decodeStrictly(text, &file); err != nil {
		return err
	}
	file.Job.Canonicalize()
	// The API's type Job is converted to the server's type Job by way of JSON, because the two
	// types have the same field names, apart from obsolete settings. The server itself copies field
	// by field, in a package that depends on most of Nomad.
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

func decodeStrictly(text []byte, to any) error {
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
